#!/bin/sh
# Roll a DaemonSet with updateStrategy OnDelete: first on a few nodes, on all others if gangctl gate passes, and back if it
# fails. After "not enough data", or when it was interrupted, call it again with the same words: it goes on.
#
#   roll.sh NAMESPACE DAEMONSET CONTAINER=IMAGE NODE[,NODE...] [FLAG-OF-GATE ...]
#   roll.sh gpu driver driver=registry.example/driver:580 node-7,node-8 --since 6h --watch
#
# The label rollout.gangctl.io/DAEMONSET=candidate marks the nodes with the change until all is decided.
# Exit codes: 0 rolled out, 1 rolled back, 2 bad input or a command failed, 3 not enough data.
set -eu
[ $# -ge 4 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
namespace=$1 name=$2 container=${3%%=*} image=${3#*=} canaries=$(echo "$4" | tr , ' ')
shift 4
mark=rollout.gangctl.io/$name
kube() { kubectl -n "$namespace" "$@" || exit 2; }

kind=$(kube get daemonset "$name" -o 'jsonpath={.spec.updateStrategy.type}')
[ "$kind" = OnDelete ] || { echo "$namespace/$name has updateStrategy $kind: it must be OnDelete" >&2; exit 2; }

pods() { # lines of its pods: NODE POD IMAGE
  of_container="{.spec.containers[?(@.name=='$container')].image}"
  kube get pods -o "jsonpath={range .items[*]}{.metadata.ownerReferences[0].name} {.spec.nodeName} {.metadata.name} $of_container{'\n'}{end}" |
    awk -v owner="$name" '$1 == owner {print $2, $3, $4}'
}

replace() { # NODE IMAGE: its pod there is replaced, if it has another image, and ready
  pod=$(pods | awk -v node="$1" -v image="$2" '$1 == node && $3 != image {print $2}')
  [ -z "$pod" ] || kube delete pod "$pod"
  until new=$(pods | awk -v node="$1" -v image="$2" '$1 == node && $3 == image {print $2}') && [ -n "$new" ]; do sleep 1; done
  kube wait --for=condition=Ready pod "$new" --timeout=600s
}

kube set image daemonset "$name" "$container=$image"
for node in $canaries; do
  kube label node "$node" "$mark=candidate" --overwrite
  replace "$node" "$image"
done

code=0
gangctl gate --candidate "$mark=candidate" --baseline "!$mark" "$@" || code=$?
case $code in
0) ;;
1)
  kube rollout undo daemonset "$name"
  image=$(kube get daemonset "$name" -o "jsonpath={.spec.template.spec.containers[?(@.name=='$container')].image}")
  ;;
*) exit "$code" ;;
esac
for node in $(pods | awk -v image="$image" '$3 != image {print $1}'); do replace "$node" "$image"; done
kube label nodes -l "$mark" "$mark-"
exit "$code"
