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

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// upgrade has several of everything, then has all Pods replaced, of the hub and of the spoke that the first Application is on, while people look at
// live resources and change that Application. No request fails and no change is lost.
func upgrade(t *testing.T, g guide, u ui, apps ...installed) {
	t.Helper()
	several := `helm upgrade argocd-agent ` + shared.Chart("hub") + ` --kube-context hub -n argocd --reuse-values --wait --timeout 10m ` +
		`--set principal.replicas=2,kubeproxy.replicas=2,redisproxy.replicas=2,xds.enabled=true`
	_, err := g.Shell.Run(within(t), several)
	require.NoError(t, err, explain(t, u.sites...))

	ctx, stop := context.WithCancel(within(t))
	var work sync.WaitGroup
	failures, asked := make([][]string, len(apps)), make([]int, len(apps))
	for i, a := range apps {
		work.Go(func() { asked[i], failures[i] = looks(ctx, u, a) })
	}
	changes := 0
	work.Go(func() { changes = edits(ctx, apps[0]) })

	_, hubs := g.Shell.Run(within(t), several+` --set log.format=json`)
	_, spokes := g.Shell.Run(within(t), `helm upgrade argocd-agent `+shared.Chart("spoke")+` --kube-context spoke -n argocd --reuse-values --wait --timeout 10m --set log.format=json`)
	stop()
	work.Wait()
	require.NoError(t, errors.Join(hubs, spokes), explain(t, u.sites...))
	require.Empty(t, slices.Concat(failures...), explain(t, u.sites...))
	t.Log("live resources were asked for", asked, "times,", changes, "changes")
	require.NotContains(t, asked, 0)
	require.NotZero(t, changes)
	_, err = apps[0].spoke.Wait(within(t), apps[0].onSpoke, func(object *unstructured.Unstructured) bool {
		return object.GetLabels()["change"] == strconv.Itoa(changes)
	})
	require.NoError(t, err, explain(t, u.sites...))
}

// looks asks for a live resource again and again, and returns how often, and what went wrong.
func looks(ctx context.Context, u ui, a installed) (asked int, failures []string) {
	address := "http://" + u.address + "/api/v1/applications/" + a.onHub.Name + "/resource?" + url.Values{
		"appNamespace": {a.agent}, "namespace": {a.into}, "resourceName": {"guestbook-ui"}, "version": {"v1"}, "group": {"apps"}, "kind": {"Deployment"},
	}.Encode()
	for ; ctx.Err() == nil; asked++ {
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

// edits changes an Application again and again, and returns how often. Each change is made when the hub has the one before.
func edits(ctx context.Context, a installed) (changes int) {
	for ctx.Err() == nil {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"change":"%d"}}}`, changes+1)
		// The last one may be refused for its context, and then is not done.
		if _, err := a.hub.Of(a.onHub).Patch(context.WithoutCancel(ctx), a.onHub.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			changes++
		}
	}
	return changes
}
