{{- define "spoke.name" -}}argocd-agent-agent{{- end }}

{{- define "spoke.selector" -}}
app.kubernetes.io/name: {{ include "spoke.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{- define "spoke.labels" -}}
{{ include "spoke.selector" . }}
app.kubernetes.io/part-of: argocd-agent
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The image of a program, by its name. */}}
{{- define "spoke.image" -}}
{{- printf "%s/%s:%s" .root.Values.image.registry .name (.root.Values.image.tag | default .root.Chart.AppVersion) }}
{{- end }}

{{- /* What the chart's values say as keys of argocd-agent-params; those of `params` win. */}}
{{- define "spoke.params" -}}
{{- $p := dict
  "agent.namespace" .Release.Namespace
  "agent.server.address" .Values.server.address
  "agent.server.port" (.Values.server.port | toString)
  "agent.mode" .Values.mode
  "agent.creds" "mtls:any"
  "agent.destination-based-mapping" (.Values.destinationBasedMapping | toString)
  "agent.resource-proxy.enable" (.Values.resourceProxy.enabled | toString)
  "agent.redis.address" .Values.redis.address
  "agent.log.level" .Values.log.level
  "agent.log.format" .Values.log.format }}
{{- if and .Values.server.spiffeID (ne .Values.certificates.mode "sidecar") }}{{ $_ := set $p "agent.principal.spiffe-id" .Values.server.spiffeID }}{{ end }}
{{- if eq .Values.certificates.mode "enroll" }}{{ $_ := set $p "agent.enrollment.port" (.Values.certificates.enroll.port | toString) }}{{ end }}
{{- if eq .Values.certificates.mode "spire" }}{{ $_ := set $p "agent.spiffe-endpoint-socket" (printf "unix:///run/spire/agent-sockets/%s" .Values.certificates.spire.socket) }}{{ end }}
{{- if eq .Values.certificates.mode "sidecar" }}{{ $_ := set $p "agent.tls.insecure-plaintext" "true" }}{{ $_ := set $p "agent.creds" "header:any" }}{{ end }}
{{- range $key, $value := .Values.params }}{{ $_ := set $p $key ($value | toString) }}{{ end }}
{{- toYaml $p }}
{{- end }}

{{- /* The port of the agent's metrics. */}}
{{- define "spoke.metricsPort" -}}
{{- index .Values.params "agent.metrics.port" | default 8181 }}
{{- end }}

{{- /* The agent's name, where it is known. */}}
{{- define "spoke.agent" -}}
{{- .Values.name | default (splitList "." .Values.certificates.enroll.token | first) }}
{{- end }}

{{- /* The security context of every container: Pod Security's level "restricted". */}}
{{- define "spoke.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "spoke.pod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* How many seconds before its end somebody should have renewed a certificate. Empty where that is nobody's task: SPIRE and sidecars do it every hour. */}}
{{- define "spoke.certificateMargin" -}}
{{- $fortnight := 1209600 }}
{{- with .Values.certificates }}
{{- if eq .mode "cert-manager" }}{{- /* it renews them when a third of their life is left */}}
{{- $seconds := 0 }}
{{- range regexFindAll "[0-9]+[hms]" .certManager.duration -1 }}
{{- $seconds = add $seconds (mul (trimAll "hms" . | atoi) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]" .))) }}
{{- end }}
{{- min (div $seconds 6) $fortnight }}
{{- else if eq .mode "enroll" }}{{- /* they are valid for a day, and the agent renews them when 8 to 10 hours are left */}}
{{- 21600 }}
{{- else if eq .mode "secrets" }}
{{- $fortnight }}
{{- end }}
{{- end }}
{{- end }}
