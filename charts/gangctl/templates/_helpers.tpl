{{- define "gangctl.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters, so that names of pods aren't cut. The name of a Service can't have dots. */}}
{{- define "gangctl.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := .Values.fullnameOverride }}
{{- if not $full }}
{{- $full = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- end }}
{{- $full = $full | replace "." "-" | trunc 52 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "fullnameOverride: the name of a Service begins with a letter, but %q does not; choose another name" $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{/* Name of cluster-scoped objects. Releases of the same name in two namespaces must not share it. */}}
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
{{- with omit .Values.commonLabels "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/part-of" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gangctl.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gangctl.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/*
Image reference of {root, image, value}: repository:tag, or repository@digest if the tag is a digest. There is no default
registry: nodes would take the image from a public one, where anyone might own the name.
*/}}
{{- define "gangctl.image" -}}
{{- $repository := .image.repository }}
{{- $host := splitList "/" $repository | first }}
{{- if not (and (contains "/" $repository) (or (contains "." $host) (contains ":" $host) (eq "localhost" $host))) }}
{{- $registry := .root.Values.global.imageRegistry | trimSuffix "/" }}
{{- if not $registry }}
{{- fail (printf "%s.repository %q names no registry, so nodes would pull it from a public one, where anyone might own the name. Set global.imageRegistry to the registry that has gangctl's images, or %s.repository to HOST/PATH. docs/tasks/install.md says how to build or mirror the images" .value $repository .value) }}
{{- end }}
{{- $repository = printf "%s/%s" $registry $repository }}
{{- end }}
{{- $tag := default .root.Chart.AppVersion .image.tag }}
{{- printf "%s%s%s" $repository (hasPrefix "sha256:" $tag | ternary "@" ":") $tag }}
{{- end }}

{{/* Names of the pull secrets that pods of gangs get, separated by commas. */}}
{{- define "gangctl.sidecarPullSecrets" -}}
{{- $names := list }}
{{- range .Values.sidecar.imagePullSecrets }}{{ $names = append $names .name }}{{ end }}
{{- join "," $names }}
{{- end }}

{{- define "gangctl.url" -}}
{{- printf "wss://%s.%s.svc:%d/v1/connect" (include "gangctl.fullname" .) .Release.Namespace (int .Values.hub.port) }}
{{- end }}

{{/* The Secret with the hub's certificates. */}}
{{- define "gangctl.tlsSecret" -}}
{{- default (printf "%s-tls" (include "gangctl.fullname" .)) .Values.hub.tls.secretName }}
{{- end }}

{{/* The controller's permissions for gangs and their pods. */}}
{{- define "gangctl.gangRules" -}}
- apiGroups: [gangctl.io]
  resources: [gangjobs]
  verbs: [get, list, watch, delete]  # delete: ttlSecondsAfterFinished
- apiGroups: [gangctl.io]
  resources: [gangjobs/status]
  verbs: [update]
# For owner references with blockOwnerDeletion.
- apiGroups: [gangctl.io]
  resources: [gangjobs/finalizers]
  verbs: [update]
# Pods are created and deleted. Of a pod that runs, only annotations are changed, through its status, and the label
# that makes it known by a JobSet's host name: what it runs can't be changed there.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch]
# Of gangs with spec.gangScheduling. deletecollection: the groups of earlier pods, by their labels.
- apiGroups: [scheduling.k8s.io]
  resources: [podgroups]
  verbs: [get, create, deletecollection]
{{- if .Values.workerOutput.enabled }}
# The end of the log of a worker at fault.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- if .Values.deviceGuard.enabled }}
# Of pods with the label gangctl.io/device-guard. An eviction respects PodDisruptionBudgets.
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end }}
{{- if .Values.deviceTaints.enabled }}
# Which pods have which devices.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [list, watch]
{{- end }}
{{- if .Values.jobsets.enabled }}
# JobSets that name gangctl as their controller: the GangJobs made from them, their headless Services and claims.
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch, delete]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets/status]
  verbs: [patch]
# For owner references with blockOwnerDeletion.
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets/finalizers]
  verbs: [update]
- apiGroups: [gangctl.io]
  resources: [gangjobs]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [services, persistentvolumeclaims]
  verbs: [get, list, watch, create]
{{- end }}
{{- if .Values.kueue.enabled }}
# The Workload of a gang that waits in a queue.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [get, list, watch, create, delete]
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads/status]
  verbs: [patch]
{{- end }}
{{- end }}

{{/* For a Prometheus that finds pods by annotations: it sends no token. With a monitor, pods would be scraped twice. */}}
{{- define "gangctl.scrapeAnnotations" -}}
{{- $metrics := .Values.metrics }}
{{- if and $metrics.annotations (not (or $metrics.secure $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled)) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ $metrics.port | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* How a ServiceMonitor or PodMonitor scrapes a controller. */}}
{{- define "gangctl.endpoint" -}}
port: metrics
path: /metrics
{{- if .Values.metrics.secure }}
scheme: https
tlsConfig:
  serverName: {{ include "gangctl.fullname" . }}.{{ .Release.Namespace }}.svc
  ca:
    secret:
      name: {{ include "gangctl.tlsSecret" . }}
      key: ca.crt
{{- end }}
# Keep the label namespace, which is the gang's and not the controller's.
honorLabels: true
{{- end }}

{{/* OpenTelemetry's standard variables. extraEnv overrides them. */}}
{{- define "gangctl.tracingEnv" -}}
{{- $named := list -}}
{{- range .Values.extraEnv }}{{ $named = append $named .name }}{{ end -}}
{{- $tracing := .Values.tracing -}}
{{- if and $tracing.endpoint (not (has "OTEL_EXPORTER_OTLP_ENDPOINT" $named)) }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $tracing.endpoint | quote }}
{{- end }}
{{- if and $tracing.uiUrl (not (has "OTEL_UI_URL" $named)) }}
- name: OTEL_UI_URL
  value: {{ $tracing.uiUrl | quote }}
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
