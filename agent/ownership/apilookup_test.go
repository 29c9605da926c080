package ownership_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
)

func tracked(id string) metav1.ObjectMeta {
	return metav1.ObjectMeta{UID: "live", Annotations: map[string]string{"argocd.argoproj.io/tracking-id": id}}
}

func ownedBy(version, kind, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{UID: "live", OwnerReferences: []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid)}}}
}

func TestObjectInNoTreeYetIsFoundByItsTrackingMark(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(0))
	const pods = "/api/v1/namespaces/a/pods/"
	for name, meta := range map[string]metav1.ObjectMeta{
		"mine":      tracked("team_web:/Pod:a/mine"),
		"copied":    tracked("team_web:/Pod:a/mine"),
		"elsewhere": tracked("team_web:/Pod:b/elsewhere"),
		"kind":      tracked("team_web:/Pods:a/kind"),
		"group":     tracked("team_web:apps/Pod:a/group"),
		"deleted":   tracked("deleted:/Pod:a/deleted"),
		"empty":     tracked(":/Pod:a/empty"),
		"text":      tracked("team_web"),
		"labelled":  {UID: "live", Labels: map[string]string{"app.kubernetes.io/instance": "guestbook"}},
		"child":     ownedBy("apps/v1", "ReplicaSet", "web-1", "web-1-uid"),
		"another":   ownedBy("apps/v1", "ReplicaSet", "web-1", "not-that-one"),
		"nothing":   ownedBy("apps/v1", "ReplicaSet", "gone", "gone-uid"),
		"strange":   ownedBy("a/b/c", "ReplicaSet", "web-1", "web-1-uid"),
		"grand":     ownedBy("apps/v1", "ReplicaSet", "new", "new-uid"),
		"circle":    ownedBy("v1", "Pod", "circle", "live"),
	} {
		api.put(pods+name, meta)
	}
	replica := ownedBy("apps/v1", "Deployment", "new", "deployment-uid")
	replica.UID = "new-uid"
	api.put("/apis/apps/v1/namespaces/a/replicasets/new", replica)
	deployment := tracked("fresh:apps/Deployment:a/new")
	deployment.UID = "deployment-uid"
	api.put("/apis/apps/v1/namespaces/a/deployments/new", deployment)
	api.put("/apis/rbac.authorization.k8s.io/v1/clusterroles/r", tracked("team_web:rbac.authorization.k8s.io/ClusterRole:destination/r"))
	index := newIndex(t, s, api)
	runs(t, index)
	for text, want := range map[string]ownership.Owner{
		"/pods/a/mine":  {Application: "team_web", Root: true},
		"/pods/a/child": {Application: "guestbook"}, "/pods/a/grand": {Application: "fresh"},
		"rbac.authorization.k8s.io/clusterroles//r": {Application: "team_web", Root: true},
		"/pods/a/copied": {}, "/pods/a/elsewhere": {}, "/pods/a/kind": {}, "/pods/a/group": {}, "/pods/a/deleted": {}, "/pods/a/empty": {},
		"/pods/a/text": {}, "/pods/a/labelled": {}, "/pods/a/another": {}, "/pods/a/nothing": {}, "/pods/a/strange": {}, "/pods/a/circle": {}, "/pods/a/absent": {},
	} {
		require.Equal(t, want, lookup(t, index, object(text)), text)
	}
	mine := object("/pods/a/mine")
	mine.UID = "live"
	require.Equal(t, "team_web", lookup(t, index, mine).Application)
	mine.UID = "older"
	require.Empty(t, lookup(t, index, mine).Application)

	asked := api.asked.Load()
	lookup(t, index, object("/pods/a/grand"))
	lookup(t, index, object("/pods/a/absent"))
	require.Equal(t, asked, api.asked.Load(), "an answer holds for a moment")
	require.LessOrEqual(t, api.listed.Load(), int64(2))
}

func TestOwnersBeyondTheDepthLimitAreNotFollowed(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	for i := range 8 {
		meta := ownedBy("v1", "Pod", fmt.Sprint("p-", i+1), fmt.Sprint("uid-", i+1))
		if i == 7 {
			meta = tracked("guestbook:/Pod:a/p-7")
		}
		meta.UID = types.UID(fmt.Sprint("uid-", i))
		api.put(fmt.Sprint("/api/v1/namespaces/a/pods/p-", i), meta)
	}
	index := newIndex(t, s, api)
	runs(t, index)
	require.Equal(t, "guestbook", lookup(t, index, object("/pods/a/p-2")).Application)
	require.Empty(t, lookup(t, index, object("/pods/a/p-1")).Application)
}

func TestTrackingByLabel(t *testing.T) {
	for name, c := range map[string]struct {
		settings map[string]string
		object   metav1.ObjectMeta
		want     string
	}{
		"label":           {map[string]string{"application.resourceTrackingMethod": "label"}, metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/instance": "g"}}, "g"},
		"another label":   {map[string]string{"application.resourceTrackingMethod": "label", "application.instanceLabelKey": "x/y"}, metav1.ObjectMeta{Labels: map[string]string{"x/y": "g"}}, "g"},
		"no annotation":   {map[string]string{"application.resourceTrackingMethod": "label"}, tracked("g:/Pod:a/p"), ""},
		"both":            {map[string]string{"application.resourceTrackingMethod": "annotation+label"}, tracked("g:/Pod:a/p"), "g"},
		"no installation": {map[string]string{"installationID": "i"}, tracked("g:/Pod:a/p"), ""},
		"installation": {map[string]string{"installationID": "i"}, metav1.ObjectMeta{Annotations: map[string]string{
			"argocd.argoproj.io/tracking-id": "g:/Pod:a/p", "argocd.argoproj.io/installation-id": "i",
		}}, "g"},
	} {
		t.Run(name, func(t *testing.T) {
			s, api := newStore(t), newAPIServer(t)
			api.settings = c.settings
			api.put("/api/v1/namespaces/a/pods/p", c.object)
			index := newIndex(t, s, api)
			runs(t, index)
			pod := object("/pods/a/p")
			if c.want == "" {
				require.Eventually(t, func() bool { return index.SettingsLoaded() }, waitFor, tick)
			}
			require.Eventually(t, func() bool { return lookup(t, index, pod).Application == c.want }, waitFor, tick)
		})
	}
}

func TestAPIServerUnavailable(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	index := newIndex(t, s, api)
	runs(t, index)
	api.put("/api/v1/namespaces/a/pods/p", tracked("g:/Pod:a/p"))
	set := func(fails bool) {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.fails = fails
	}
	set(true)
	_, err := index.Lookup(t.Context(), object("/pods/a/p"))
	require.ErrorContains(t, err, "discover the kinds of the API server")
	set(false)
	require.Empty(t, lookup(t, index, object("/pods/a/other")).Application)
	set(true)
	_, err = index.Lookup(t.Context(), object("/pods/a/p"))
	require.ErrorContains(t, err, "the API server")
	set(false)
	require.Equal(t, "g", lookup(t, index, object("/pods/a/p")).Application, "a failure is not remembered")
}
