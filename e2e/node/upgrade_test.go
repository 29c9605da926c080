package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// upgrade has several of everything, then has all Pods replaced, of the hub and of the spoke that the first Application is on, while people look at
// live resources and change that Application. No request fails and no change is lost.
func upgrade(t *testing.T, g guide, u ui, apps ...installed) {
	t.Helper()
	several := `helm upgrade argocd-agent ` + shared.Chart("hub") + ` --kube-context hub -n argocd --reset-then-reuse-values --wait --timeout 10m ` +
		`--set principal.replicas=2,kubeproxy.replicas=2,redisproxy.replicas=2,xds.enabled=true`
	_, err := g.Shell.Run(within(t), several)
	require.NoError(t, err, explain(t, u.sites...))

	ctx, stop := context.WithCancel(within(t))
	var work sync.WaitGroup
	failures, asked := make([][]string, len(apps)), make([]int, len(apps))
	for i, a := range apps {
		work.Go(func() { asked[i], failures[i] = looks(ctx, u, a) })
	}
	var changes int
	var editing error
	work.Go(func() { changes, editing = edits(ctx, apps[0]) })

	_, hubs := g.Shell.Run(within(t), several+` --set log.format=json`)
	_, spokes := g.Shell.Run(within(t), `helm upgrade argocd-agent `+shared.Chart("spoke")+` --kube-context spoke -n argocd --reset-then-reuse-values --wait --timeout 10m --set log.format=json`)
	stop()
	work.Wait()
	require.NoError(t, errors.Join(hubs, spokes, editing), explain(t, u.sites...))
	require.Empty(t, slices.Concat(failures...), explain(t, u.sites...))
	t.Log("live resources were asked for", asked, "times,", changes, "changes")
	require.NotContains(t, asked, 0)
	require.NotZero(t, changes)
}

// pause is how long a person looks before asking again: the machine has the Pods to replace, too.
const pause = 50 * time.Millisecond

// looks asks for a live resource again and again, and returns how often, and what went wrong.
func looks(ctx context.Context, u ui, a installed) (asked int, failures []string) {
	address := "http://" + u.address + "/api/v1/applications/" + a.onHub.Name + "/resource?" + url.Values{
		"appNamespace": {a.agent}, "namespace": {a.into}, "resourceName": {"guestbook-ui"}, "version": {"v1"}, "group": {"apps"}, "kind": {"Deployment"},
	}.Encode()
	clock := time.NewTicker(pause)
	defer clock.Stop()
	for ; ctx.Err() == nil; asked++ {
		<-clock.C
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return asked, []string{err.Error()}
		}
		request.AddCookie(&http.Cookie{Name: "argocd.token", Value: u.token})
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			if ctx.Err() == nil {
				failures = append(failures, err.Error())
			}
			continue
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close() // it was read
		if ctx.Err() == nil && (err != nil || response.StatusCode != http.StatusOK) {
			failures = append(failures, fmt.Sprint(response.Status, err, string(answer)))
		}
	}
	return asked, failures
}

// edits changes an Application again and again, each time when the spoke has the change before, and returns how often.
func edits(ctx context.Context, a installed) (changes int, err error) {
	for ctx.Err() == nil {
		next := strconv.Itoa(changes + 1)
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":%q}}}`, next)
		whole := context.WithoutCancel(ctx)
		if _, err := a.hub.Of(a.onHub).Patch(whole, a.onHub.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return changes, err
		}
		arrival, cancel := context.WithTimeout(whole, timeout)
		_, err := a.spoke.Wait(arrival, a.onSpoke, func(object *unstructured.Unstructured) bool { return object.GetLabels()["change"] == next })
		cancel()
		if err != nil {
			return changes, fmt.Errorf("change %s does not arrive: %w", next, err)
		}
		changes++
	}
	return changes, nil
}
