// Package charts_test holds the tests of the charts: what Helm makes of them, and what a real API server does with it.
package charts_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// How long the lab, and each command of Helm, may take.
const timeout = 5 * time.Minute

var (
	// shared is the lab of all tests. Each that installs something has a namespace of its own on its spoke, where Pods and Jobs come to life.
	shared *lab.Lab                                                                                    //nolint:gochecknoglobals // TestMain has no other way to hand something to tests
	update = flag.Bool("update", false, "write the charts' READMEs and testdata instead of comparing") //nolint:gochecknoglobals // a flag
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runWithLab(m))
}

func runWithLab(m *testing.M) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var err error
	shared, err = lab.Start(ctx, lab.Options{Spokes: []string{"a"}, Pods: true, Progress: func(line string) { fmt.Println("lab:", line) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := shared.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close the lab:", err)
			code = 1
		}
	}()
	// The hub knows Istio's objects, and the spoke does not.
	ingress := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-ingress}")
	if err := errors.Join(shared.Hub.Define(ctx, shared.Tools.File(toolset.IstioCRDs)), shared.Hub.ApplyYAML(ctx, ingress, "")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
