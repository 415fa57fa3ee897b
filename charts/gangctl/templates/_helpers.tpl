{{- define "gangctl.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters, so that a pod's name isn't cut; a Service's name has no dots. */}}
{{- define "gangctl.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := .Values.fullnameOverride }}
{{- if not $full }}
{{- $full = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- end }}
{{- $full = $full | replace "." "-" | trunc 52 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "fullnameOverride: a Service's name begins with a letter, and %q does not: choose one" $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{/* Of what is in no namespace: two releases of one name, in two namespaces, must not meet. */}}
{{- define "gangctl.clusterName" -}}
{{- printf "%s:%s" (include "gangctl.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "gangctl.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gangctl.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gangctl.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "gangctl.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: gangctl
{{- end }}

{{- define "gangctl.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gangctl.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Of {image, appVersion}: repository:tag, or repository@digest where the tag is a digest. */}}
{{- define "gangctl.image" -}}
{{- $tag := default .appVersion .image.tag }}
{{- printf "%s%s%s" .image.repository (hasPrefix "sha256:" $tag | ternary "@" ":") $tag }}
{{- end }}

{{- define "gangctl.url" -}}
{{- printf "wss://%s.%s.svc:%d/v1/connect" (include "gangctl.fullname" .) .Release.Namespace (int .Values.hub.port) }}
{{- end }}

{{/* What the controller does to gangs and their pods, wherever it does it. */}}
{{- define "gangctl.gangRules" -}}
- apiGroups: [gangctl.io]
  resources: [gangjobs]
  verbs: [get, list, watch]
- apiGroups: [gangctl.io]
  resources: [gangjobs/status]
  verbs: [get, patch, update]
# Owner references that block the owner's deletion.
- apiGroups: [gangctl.io]
  resources: [gangjobs/finalizers]
  verbs: [update]
# A pod is made and deleted, and never changed.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, update]
{{- end }}

{{/* For a Prometheus that finds pods by annotations; one that has the ServiceMonitor would count them twice. */}}
{{- define "gangctl.scrapeAnnotations" -}}
{{- if and .Values.metrics.annotations (not .Values.metrics.serviceMonitor.enabled) }}
prometheus.io/scrape: "true"
prometheus.io/port: "8080"
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* The standard settings of OpenTelemetry; what extraEnv names is left to it. */}}
{{- define "gangctl.tracingEnv" -}}
{{- $named := list -}}
{{- range .Values.extraEnv }}{{ $named = append $named .name }}{{ end -}}
{{- $tracing := .Values.tracing -}}
{{- if and $tracing.endpoint (not (has "OTEL_EXPORTER_OTLP_ENDPOINT" $named)) }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $tracing.endpoint | quote }}
{{- end }}
{{- if and $tracing.headersSecret.name (not (has "OTEL_EXPORTER_OTLP_HEADERS" $named)) }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ $tracing.headersSecret.name }}
      key: {{ $tracing.headersSecret.key }}
      optional: true
{{- end }}
{{- if and $tracing.sampler (not (has "OTEL_TRACES_SAMPLER" $named)) }}
- name: OTEL_TRACES_SAMPLER
  value: {{ $tracing.sampler | quote }}
{{- end }}
{{- if and $tracing.samplerArg (not (has "OTEL_TRACES_SAMPLER_ARG" $named)) }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ $tracing.samplerArg | quote }}
{{- end }}
{{- end }}
