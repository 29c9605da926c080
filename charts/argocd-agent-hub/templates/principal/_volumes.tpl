{{- define "hub.mounts.principal" -}}
{{- include "hub.spireMount" . }}
{{- with .Values.principal.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hub.volumes.principal" -}}
{{- include "hub.spireVolume" . }}
{{- with .Values.principal.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
