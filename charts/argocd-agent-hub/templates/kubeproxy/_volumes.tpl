{{- define "hub.mounts.kubeproxy" -}}
{{- if ne .Values.certificates.mode "sidecar" }}
- {name: tls, mountPath: /etc/argocd-agent/tls, readOnly: true}
- {name: jwt, mountPath: /etc/argocd-agent/jwt, readOnly: true}
{{- end }}
{{- if include "hub.filesOfProxies" . }}
- {name: principal, mountPath: /etc/argocd-agent/principal, readOnly: true}
{{- end }}
{{- if .Values.xds.enabled }}
- {name: xds, mountPath: /etc/argocd-agent/xds, readOnly: true}
{{- end }}
{{- include "hub.spireMount" . }}
{{- with .Values.kubeproxy.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "hub.volumes.kubeproxy" -}}
{{- if ne .Values.certificates.mode "sidecar" }}
- name: tls
  secret: {secretName: argocd-agent-resource-proxy-tls}
- name: jwt
  secret: {secretName: argocd-agent-jwt}
{{- end }}
{{- if include "hub.filesOfProxies" . }}
- name: principal
  secret: {secretName: argocd-agent-kubeproxy-tls}
{{- end }}
{{- if .Values.xds.enabled }}
- name: xds
  configMap: {name: argocd-agent-xds-bootstrap}
{{- end }}
{{- include "hub.spireVolume" . }}
{{- with .Values.kubeproxy.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
