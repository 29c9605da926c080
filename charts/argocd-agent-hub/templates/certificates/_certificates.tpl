{{- /* Not empty for an IPv4 address. */}}
{{- define "hub.isIP" -}}
{{- if regexMatch `^[0-9]+(\.[0-9]+){3}$` . }}yes{{ end }}
{{- end }}

{{- /* The addresses in the principal's certificate, as a YAML list. */}}
{{- define "hub.addresses" -}}
{{- $all := .Values.certificates.ip }}
{{- if include "hub.isIP" .Values.server.address }}{{ $all = prepend $all .Values.server.address }}{{ end }}
{{- toYaml $all }}
{{- end }}

{{- /* Not empty where the Job makes certificates. By SPIRE it makes kubeproxy's for argocd-server, which knows no SPIFFE. */}}
{{- define "hub.job" -}}
{{- if has .Values.certificates.mode (list "job" "spire") }}yes{{ end }}
{{- if and (eq .Values.certificates.mode "cert-manager") }}yes{{ end }}
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
{{- $dns := .Values.certificates.dns }}
{{- if not (include "hub.isIP" .Values.server.address) }}{{ $dns = prepend $dns .Values.server.address }}{{ end }}
- name: principal
  args: [pki, issue, principal, --renew, {{ $days }}{{ with $dns }}, "--dns={{ join "," . }}"{{ end }}{{ with include "hub.addresses" . | fromYamlArray }}, "--ip={{ join "," . }}"{{ end }}]
{{- if .Values.xds.enabled }}
- name: xds
  args: [pki, issue, xds, --renew, {{ $days }}]
{{- end }}
{{- end }}
- name: jwt
  args: [jwt, create-key]
{{- end }}
