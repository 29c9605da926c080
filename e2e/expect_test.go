package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// timeout is how long a test waits for something to become true on a busy machine. Nothing waits longer than it must.
const timeout = time.Minute

// expect watches an object until the condition holds, and returns it as it was then; the condition is given nil when
// there is none. When it never holds, the test fails with the object as last seen and the ends of the logs.
func expect(
	t *testing.T, c *lab.Cluster, s cluster.Selection, holds func(*unstructured.Unstructured) bool,
) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	object, err := c.Wait(ctx, s, holds)
	if err != nil {
		t.Fatalf("%v\n%s", err, shared.Report())
	}
	return object
}

// expectGone watches until an object does not exist.
func expectGone(t *testing.T, c *lab.Cluster, s cluster.Selection) {
	t.Helper()
	expect(t, c, s, func(object *unstructured.Unstructured) bool { return object == nil })
}

// create applies an object, and deletes it when the test is over.
func create(t *testing.T, c *lab.Cluster, s cluster.Selection, object *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), object))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := c.Delete(ctx, s); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
}
