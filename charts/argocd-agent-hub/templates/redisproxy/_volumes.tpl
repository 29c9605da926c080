{{- define "hub.mounts.redisproxy" -}}
{{- if include "hub.filesOfProxies" . }}
- {name: principal, mountPath: /etc/argocd-agent/principal, readOnly: true}
{{- end }}
{{- if .Values.xds.enabled }}
- {name: xds, mountPath: /etc/argocd-agent/xds, readOnly: true}
{{- end }}
{{- include "hub.spireMount" . }}
{{- with .Values.redisproxy.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hub.volumes.redisproxy" -}}
{{- if include "hub.filesOfProxies" . }}
- name: principal
  secret: {secretName: argocd-agent-redisproxy-tls}
{{- end }}
{{- if .Values.xds.enabled }}
- name: xds
  configMap: {name: argocd-agent-xds-bootstrap}
{{- end }}
{{- include "hub.spireVolume" . }}
{{- with .Values.redisproxy.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
