{{- define "hub.mounts.xds" -}}
{{- if include "hub.filesOfProxies" . }}
- {name: tls, mountPath: /etc/argocd-agent/tls, readOnly: true}
{{- end }}
{{- include "hub.spireMount" . }}
{{- with .Values.xds.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hub.volumes.xds" -}}
{{- if include "hub.filesOfProxies" . }}
- name: tls
  secret: {secretName: argocd-agent-xds-tls}
{{- end }}
{{- include "hub.spireVolume" . }}
{{- with .Values.xds.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
