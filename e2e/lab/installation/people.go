package installation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Shell is where a person types commands: kubectl, helm, argocd and argocd-agentctl, with a context for each site.
type Shell struct {
	Dir string // the working directory, empty at first

	own []string // of its environment
}

// newShell makes one, of which argocd-agentctl is at a path.
func (l *Lab) newShell(agentctl string) (*Shell, error) {
	bin, err := l.Host.Folder("shell", "bin")
	if err != nil {
		return nil, err
	}
	for name, path := range map[string]string{
		"kubectl": l.Tools.Program(toolset.Kubectl), "helm": l.Tools.Program(toolset.Helm), "argocd": l.Tools.Program(toolset.ArgoCD),
		"istioctl": l.Tools.Program(toolset.Istioctl), "argocd-agentctl": agentctl,
	} {
		if path == "" { // it is of no toolset that this lab has
			continue
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return nil, err
		}
	}
	dir, err := l.Host.Folder("shell", "work")
	if err != nil {
		return nil, err
	}
	return &Shell{Dir: dir, own: append(l.settings(l.Sites), "PATH="+bin+":/usr/sbin:/usr/bin:/sbin:/bin")}, nil
}

// Run runs a script of bash, up to the first command that fails, and returns what it prints.
func (s *Shell) Run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), s.own...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s\n%w: %s", script, err, out)
	}
	return string(out), nil
}

// Command is what a person types to have this shell.
func (s *Shell) Command() string {
	return "cd " + s.Dir + " && env " + strings.Join(s.own, " ") + " bash"
}

// Login returns where a site's argocd-server is, whose Service has a port of the node, and the password of Argo CD's user admin.
func (s *Site) Login(ctx context.Context) (address, password string, err error) {
	secret, err := s.Kubernetes.CoreV1().Secrets(Namespace).Get(ctx, "argocd-initial-admin-secret", metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	service, err := s.Kubernetes.CoreV1().Services(Namespace).Get(ctx, "argocd-server", metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	for _, port := range service.Spec.Ports {
		if port.Name == "http" && port.NodePort != 0 {
			return net.JoinHostPort(s.Node.Address, strconv.Itoa(int(port.NodePort))), string(secret.Data["password"]), nil
		}
	}
	return "", "", errors.New("the Service argocd-server has no port of the node")
}
