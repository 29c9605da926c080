package reach

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// What there is to ask for on the spoke.
const (
	application = "guestbook"                                                   // also the name of its namespace
	small       = "/api/v1/namespaces/" + application + "/configmaps/guestbook" // about 1 kB, of the Application
	apart       = "bench-large"                                                 // a namespace of no Application's
	large       = "/api/v1/namespaces/" + apart + "/configmaps/large"
	largeSize   = 1_000_000 // bytes in it
)

// policy lets the hub see the large object by a rule. What belongs to an Application is still found to.
const policy = `applications: true
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get], namespaces: [` + apart + `]}
`

// furnish puts on the spoke what is asked for, once.
func (g *ground) furnish(ctx context.Context) error {
	if g.pod != "" {
		return nil
	}
	l := g.Lab
	err := l.Hub.Apply(ctx, argocd.New(argocd.Application{
		Namespace: spoke, Name: application, Destination: spoke, Into: application, RepoURL: l.Git.URL, Path: lab.GuestbookPath,
	}))
	if err != nil {
		return err
	}
	if _, err := l.Hub.Wait(ctx, argocd.Named(spoke, application), argocd.SyncedAndHealthy); err != nil {
		return err
	}
	if err := g.permit(ctx); err != nil {
		return err
	}
	if err := l.Spoke(spoke).Apply(ctx, object("Namespace", "", apart, nil),
		object("ConfigMap", apart, "large", map[string]any{"text": text(largeSize)})); err != nil {
		return err
	}
	if err := g.writeLog(); err != nil {
		return err
	}
	pods := cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: application}
	found, err := l.Spoke(spoke).List(ctx, pods)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("the Application %s has no Pods", application)
	}
	g.pod = found[0].GetName()
	return nil
}

// permit gives the agent its policy, and returns when that is in force.
func (g *ground) permit(ctx context.Context) error {
	agent := g.Lab.Agent(spoke)
	mark := agent.Mark()
	err := g.Lab.Spoke(spoke).Apply(ctx, object("ConfigMap", lab.Namespace, "argocd-agent-policy", map[string]any{"policy.yaml": policy}))
	if err != nil {
		return err
	}
	return agent.WaitLogFrom(ctx, mark, "Loaded policy")
}

// writeLog makes the Pods' log as large as a large body. It is kept as a kubelet keeps logs.
func (g *ground) writeLog() error {
	line := text(g.Line-1) + "\n"
	entry := "2026-01-01T00:00:00.000000000Z stdout F " + line
	return os.WriteFile(g.Lab.Spoke(spoke).PodLogFile, bytes.Repeat([]byte(entry), g.Body/g.Line), 0o600)
}

// text is so many bytes that compress about as well as a manifest does, the same ones each time.
func text(size int) string {
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "setting-%06d: %x, ", i, random.Uint64())
	}
	return b.String()[:size]
}

func object(kind, namespace, name string, data map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
	}}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	if data != nil {
		o.Object["data"] = data
	}
	return o
}
