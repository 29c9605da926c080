package installation

import (
	"context"
	_ "embed"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/gitserver"
)

//go:embed manifests/guestbook.yaml
var guestbook string

// StartGit starts a Git server that Pods reach, with an application at guestbook/, as in Argo CD's examples.
func (l *Lab) StartGit(ctx context.Context) (*gitserver.Server, error) {
	return gitserver.Start(ctx, l.Host, l.Machine.Gateway(), map[string]string{"guestbook/guestbook.yaml": guestbook})
}
