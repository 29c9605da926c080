{{- /* Not empty for an IPv4 address. */}}
{{- define "hub.isIP" -}}
{{- if regexMatch `^[0-9]+(\.[0-9]+){3}$` . }}yes{{ end }}
{{- end }}

{{- /* The names in the principal's certificate besides those of its Service, as a YAML list. */}}
{{- define "hub.names" -}}
{{- $all := .Values.certificates.dns }}
{{- if not (include "hub.isIP" .Values.server.address) }}{{ $all = prepend $all .Values.server.address }}{{ end }}
{{- toYaml $all }}
{{- end }}

{{- /* The addresses in the principal's certificate, as a YAML list. */}}
{{- define "hub.addresses" -}}
{{- $all := .Values.certificates.ip }}
{{- if include "hub.isIP" .Values.server.address }}{{ $all = prepend $all .Values.server.address }}{{ end }}
{{- toYaml $all }}
{{- end }}

{{- /* Not empty where there is a Job. By SPIRE it makes kubeproxy's certificate for argocd-server, which knows no SPIFFE, by cert-manager the key of tokens. */}}
{{- define "hub.job" -}}
{{- if has .Values.certificates.mode (list "job" "spire" "cert-manager") }}yes{{ end }}
{{- end }}

{{- /* A certificate by cert-manager, of a .program, for a .name: that of a Service if it is for a server. .usages are besides signatures, and .dns
and .ip more names. */}}
{{- define "hub.certificate" -}}
{{- if eq .root.Values.certificates.mode "cert-manager" }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  {{- include "hub.metadata" (dict "root" .root "program" .program "name" (printf "%s-tls" .name)) | nindent 2 }}
spec:
  secretName: {{ .name }}-tls
  commonName: {{ .name }}
  dnsNames:
    - {{ .name }}
    {{- if has "server auth" .usages }}
    - {{ .name }}.{{ .root.Release.Namespace }}
    - {{ .name }}.{{ .root.Release.Namespace }}.svc
    - {{ .name }}.{{ .root.Release.Namespace }}.svc.cluster.local
    {{- end }}
    {{- range .dns }}
    - {{ . }}
    {{- end }}
  {{- with .ip }}
  ipAddresses: {{ toYaml . | nindent 4 }}
  {{- end }}
  duration: {{ .root.Values.certificates.certManager.duration }}
  usages: {{ prepend .usages "digital signature" | toJson }}
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  issuerRef:
    {{- toYaml .root.Values.certificates.certManager.issuerRef | nindent 4 }}
{{- end }}
{{- end }}

{{- define "hub.jobLabels" -}}
app.kubernetes.io/name: argocd-agent-certificates
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: certificates
{{ include "hub.common" . }}
{{- end }}

{{- /* Of the Job and its rights. For Argo CD they are of the phase that has the namespace of the CA, and after it by their weights. */}}
{{- define "hub.jobMetadata" -}}
labels:
  {{- include "hub.jobLabels" .root | nindent 2 }}
annotations:
  helm.sh/hook: pre-install,pre-upgrade
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  argocd.argoproj.io/hook: Sync
{{- end }}

{{- /* What the Job runs, one command of argocd-agentctl after the other: its image has no shell. */}}
{{- define "hub.jobCommands" -}}
{{- $days := printf "--days=%d" (int .Values.certificates.days) }}
{{- $mode := .Values.certificates.mode }}
{{- if ne $mode "cert-manager" }}
- name: ca
  args: [pki, init]
- name: resource-proxy
  args: [pki, issue, resource-proxy, --renew, {{ $days }}]
{{- end }}
{{- if eq $mode "job" }}
- name: principal
  args: [pki, issue, principal, --renew, {{ $days }}{{ with include "hub.names" . | fromYamlArray }}, "--dns={{ join "," . }}"{{ end }}{{ with include "hub.addresses" . | fromYamlArray }}, "--ip={{ join "," . }}"{{ end }}]
{{- if .Values.xds.enabled }}
- name: xds
  args: [pki, issue, xds, --renew, {{ $days }}]
{{- end }}
{{- end }}
- name: jwt
  args: [jwt, create-key]
{{- end }}
