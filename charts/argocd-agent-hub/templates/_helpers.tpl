{{- /* What a program's objects are called. */}}
{{- define "hub.name" -}}
{{- get (dict "principal" "argocd-agent-principal" "kubeproxy" "argocd-agent-resource-proxy" "redisproxy" "argocd-agent-redis-proxy" "xds" "argocd-agent-xds") . }}
{{- end }}

{{- /* Labels by which a program's Pods are selected; .root and .program. */}}
{{- define "hub.selector" -}}
app.kubernetes.io/name: {{ include "hub.name" .program }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .program }}
{{- end }}

{{- define "hub.common" -}}
app.kubernetes.io/part-of: argocd-agent
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
{{ include "hub.common" .root }}
{{- end }}

{{- define "hub.metadata" -}}
name: {{ .name | default (include "hub.name" .program) }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "hub.labels" . | nindent 2 }}
{{- end }}

{{- define "hub.image" -}}
{{- printf "%s/%s:%s" .root.Values.image.registry .name (.root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- end }}

{{- /* Who somebody is, as AuthorizationPolicies have it: the ServiceAccount of a .program, or an .account, in a .namespace if it is another. */}}
{{- define "hub.identity" -}}
{{- $account := .account }}
{{- if .program }}{{ $account = include "hub.name" .program }}{{ end }}
{{- printf "%s/ns/%s/sa/%s" .root.Values.trustDomain (.namespace | default .root.Release.Namespace) $account }}
{{- end }}

{{- /* The SPIFFE ID of the same. */}}
{{- define "hub.spiffeID" -}}
spiffe://{{ include "hub.identity" . }}
{{- end }}

{{- /* The ingress gateway of an Istio mesh. */}}
{{- define "hub.gateway" -}}
{{- with .Values.istio.gateway }}{{ include "hub.identity" (dict "root" $ "namespace" .namespace "account" .serviceAccount) }}{{ end }}
{{- end }}

{{- /* How a program's container begins and ends. */}}
{{- define "hub.life" -}}
lifecycle:
  preStop:
    sleep: {seconds: 5} # until no node sends connections here any more: Endpoints are known everywhere only after a Pod is told to stop
livenessProbe:
  httpGet: {path: /healthz, port: healthz}
  timeoutSeconds: 10 # a program of a node that is short of CPU is late, and not dead: to end it would cut off all of its agents
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: healthz}
  periodSeconds: 5
{{- end }}

{{- /* The port of server.address that agents connect to, empty if Kubernetes chooses it. */}}
{{- define "hub.agentsPort" -}}
{{- $service := .Values.principal.service }}
{{- if ne .Values.istio.mode "none" }}{{ .Values.istio.gateway.port }}
{{- else if ne $service.type "NodePort" }}{{ $service.port }}
{{- else if $service.nodePort }}{{ $service.nodePort }}{{ end }}
{{- end }}

{{- /* Not empty where somebody finds principals one by one: they each other, or xds them. */}}
{{- define "hub.peers" -}}
{{- if or (gt (int .Values.principal.replicas) 1) .Values.xds.enabled }}yes{{ end }}
{{- end }}

{{- /* What the chart's values say as keys of argocd-agent-params; those of `params` win. */}}
{{- define "hub.params" -}}
{{- $v := .Values }}
{{- $p := dict
  "principal.namespace" .Release.Namespace
  "principal.listen.port" "8443"
  "principal.destination-based-mapping" ($v.destinationBasedMapping | toString)
  "principal.drain-timeout" (printf "%ds" (int $v.principal.drainSeconds))
  "principal.redis.server.address" $v.redis.address
  "xds.namespace" .Release.Namespace }}
{{- range list "principal.log" "kubeproxy.log" "redisproxy.log" "xds.log" }}
{{- $separator := ternary "." "-" (eq . "principal.log") }}
{{- $_ := set $p (printf "%s%slevel" . $separator) $v.log.level }}{{ $_ = set $p (printf "%s%sformat" . $separator) $v.log.format }}
{{- end }}
{{- if gt (int $v.principal.replicas) 1 }}{{ $_ := set $p "principal.peers" "service:argocd-agent-principal-peers" }}{{ end }}
{{- if $v.enrollment.enabled }}{{ $_ := set $p "principal.signer" "ca-secret" }}{{ $_ = set $p "principal.enrollment-port" "8444" }}{{ end }}
{{- if $v.xds.enabled }}
{{- range list "kubeproxy" "redisproxy" }}{{ $_ := set $p (printf "%s.principal-address" .) "xds:///argocd-agent-principal" }}{{ end }}
{{- end }}
{{- if has $v.certificates.mode (list "spire" "sidecar") }}
{{- $principal := include "hub.spiffeID" (dict "root" . "program" "principal") }}
{{- $kube := include "hub.spiffeID" (dict "root" . "program" "kubeproxy") }}
{{- $redis := include "hub.spiffeID" (dict "root" . "program" "redisproxy") }}
{{- $_ := set $p "principal.auth" "spiffe:" }}
{{- $_ = set $p "principal.trust-domain" $v.trustDomain }}
{{- $_ = set $p "principal.hub-components" (printf "%s=kube,%s=redis,%s=peer,%s=roster" $kube $redis $principal (include "hub.spiffeID" (dict "root" . "program" "xds"))) }}
{{- $_ = set $p "xds.clients" (printf "%s,%s" $kube $redis) }}
{{- if eq $v.certificates.mode "spire" }}
{{- range list "kubeproxy" "redisproxy" "xds" }}{{ $_ := set $p (printf "%s.principal-spiffe-id" .) $principal }}{{ end }}
{{- range list "principal" "kubeproxy" "redisproxy" "xds" }}{{ $_ := set $p (printf "%s.spiffe-endpoint-socket" .) (printf "unix:///run/spire/agent-sockets/%s" $v.certificates.spire.socket) }}{{ end }}
{{- else }}
{{- $_ = set $p "principal.tls.insecure-plaintext" "true" }}
{{- $_ = set $p "kubeproxy.insecure-plaintext" "true" }}
{{- $callers := list }}
{{- range list "argocd-server" "argocd-application-controller" "argocd-applicationset-controller" }}{{ $callers = append $callers (printf "%s=*" (include "hub.spiffeID" (dict "root" $ "account" .))) }}{{ end }}
{{- $_ = set $p "kubeproxy.callers" (join "," $callers) }}
{{- $_ = set $p "kubeproxy.principal-insecure-plaintext" "true" }}
{{- $_ = set $p "redisproxy.principal-insecure-plaintext" "true" }}
{{- $_ = set $p "xds.insecure-plaintext" "true" }}
{{- if eq $v.istio.mode "sidecar" }}
{{- $_ = set $p "principal.trusted-proxies" (printf "spiffe://%s" (include "hub.gateway" .)) }}
{{- $_ = set $p "principal.xfcc-hop" "2" }}
{{- end }}
{{- end }}
{{- end }}
{{- with $v.auth }}{{ $_ := set $p "principal.auth" . }}{{ end }}
{{- if include "hub.filesOfProxies" . }}
{{- range list "kubeproxy" "redisproxy" }}
{{- $_ := set $p (printf "%s.principal-ca-path" .) "/etc/argocd-agent/principal/ca.crt" }}
{{- $_ = set $p (printf "%s.principal-client-cert" .) "/etc/argocd-agent/principal/tls.crt" }}
{{- $_ = set $p (printf "%s.principal-client-key" .) "/etc/argocd-agent/principal/tls.key" }}
{{- end }}
{{- $_ := set $p "xds.tls-cert" "/etc/argocd-agent/tls/tls.crt" }}
{{- $_ = set $p "xds.tls-key" "/etc/argocd-agent/tls/tls.key" }}
{{- $_ = set $p "xds.root-ca-path" "/etc/argocd-agent/tls/ca.crt" }}
{{- end }}
{{- if ne $v.certificates.mode "sidecar" }}
{{- $_ := set $p "principal.resource-proxy.tls.cert-path" "/etc/argocd-agent/tls/tls.crt" }}
{{- $_ = set $p "principal.resource-proxy.tls.key-path" "/etc/argocd-agent/tls/tls.key" }}
{{- $_ = set $p "principal.resource-proxy.ca.path" "/etc/argocd-agent/tls/ca.crt" }}
{{- $_ = set $p "principal.jwt.key-path" "/etc/argocd-agent/jwt/jwt.key" }}
{{- end }}
{{- range $key, $value := $v.params }}{{ $_ := set $p $key ($value | toString) }}{{ end }}
{{- toYaml $p }}
{{- end }}

{{- /* Not empty where kubeproxy, redisproxy and xds have their certificates from Secrets. */}}
{{- define "hub.filesOfProxies" -}}
{{- if has .Values.certificates.mode (list "job" "secrets" "cert-manager") }}yes{{ end }}
{{- end }}

{{- define "hub.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hub.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The port of a program's metrics; .root and .program. */}}
{{- define "hub.metricsPort" -}}
{{- index .root.Values.params (printf "%s.metrics%sport" .program (ternary "." "-" (eq .program "principal"))) | default (get (dict "principal" 8000 "kubeproxy" 8004 "redisproxy" 8006 "xds" 8008) .program) }}
{{- end }}

{{- /* The variables of a program: one for each key that there may be. */}}
{{- define "hub.environment" -}}
{{- range index (.root.Files.Get "files/parameters.yaml" | fromYaml) .program }}
- name: {{ .variable }}
  valueFrom:
    configMapKeyRef: {name: argocd-agent-params, key: {{ .key }}, optional: true}
{{- end }}
{{- end }}

{{- /* What the Pods of all programs have in common: the beginning of a Deployment's spec. */}}
{{- define "hub.podMetadata" -}}
{{- $own := index .root.Values .program }}
labels:
  {{- include "hub.labels" . | nindent 2 }}
  {{- include "hub.istioLabel" .root | indent 2 }}
  {{- with $own.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/params: {{ include "hub.params" .root | sha256sum }}
  {{- with $own.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "hub.podCommon" -}}
{{- $own := index .root.Values .program }}
serviceAccountName: {{ include "hub.name" .program }}
enableServiceLinks: false # settings come from argocd-agent-params
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "hub.selector" $ | nindent 8 }}
  {{- end }}
securityContext:
  {{- include "hub.securityContext" .root | nindent 2 }}
{{- end }}

{{- /* The volume of the Workload API's socket, where it is used. */}}
{{- define "hub.spireVolume" -}}
{{- with .Values.certificates }}
{{- if eq .mode "spire" }}
- name: spiffe-workload-api
  {{- if .spire.csiDriver }}
  csi: {driver: {{ .spire.csiDriver }}, readOnly: true}
  {{- else }}
  hostPath: {path: {{ .spire.hostPath }}, type: Directory}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "hub.spireMount" -}}
{{- if eq .Values.certificates.mode "spire" }}
- {name: spiffe-workload-api, mountPath: /run/spire/agent-sockets, readOnly: true}
{{- end }}
{{- end }}

{{- /* How many seconds before its end somebody should have renewed a certificate. Empty where that is nobody's task: SPIRE and sidecars do it every hour. */}}
{{- define "hub.certificateMargin" -}}
{{- $fortnight := 1209600 }}
{{- with .Values.certificates }}
{{- if eq .mode "cert-manager" }}{{- /* it renews them when a third of their life is left */}}
{{- $seconds := 0 }}
{{- range regexFindAll "[0-9]+[hms]" .certManager.duration -1 }}
{{- $seconds = add $seconds (mul (trimAll "hms" . | atoi) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]" .))) }}
{{- end }}
{{- min (div $seconds 6) $fortnight }}
{{- else if has .mode (list "job" "secrets") }}
{{- $fortnight }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Not empty where a program runs by itself. The principal always does. */}}
{{- define "hub.runs" -}}
{{- if dig "enabled" true (index .root.Values .program) }}yes{{ end }}
{{- end }}

{{- define "hub.podDisruptionBudget" -}}
{{- if and (include "hub.runs" .) (gt (int (index .root.Values .program).replicas) 1) }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "hub.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "hub.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "hub.podMonitor" -}}
{{- if and (include "hub.runs" .) .root.Values.metrics.podMonitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "hub.metadata" . | nindent 2 }}
    {{- with .root.Values.metrics.podMonitor.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels:
      {{- include "hub.selector" . | nindent 6 }}
  podMetricsEndpoints:
    - {port: metrics, path: /metrics}
{{- end }}
{{- end }}
