package ownership_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
)

// An Application that is not shared with the hub, or not any more, has no objects; once it is shared again it has them at once.
func TestObjectsOfAnApplicationThatIsNotSharedBelongToNone(t *testing.T) {
	s, api := newStore(t), newAPIServer(t)
	s.put(t, "guestbook", guestbook(1))
	s.put(t, "other", tree(node("/ConfigMap/b/settings/settings-uid"), node("/Pod/a/both/both-uid")))
	s.put(t, "second", tree(node("/Pod/a/both/both-uid")))
	for name, meta := range map[string]metav1.ObjectMeta{
		"mine":  tracked("guestbook:/Pod:a/mine"),
		"child": ownedBy("apps/v1", "ReplicaSet", "web-1", "web-1-uid"),
		"grand": ownedBy("v1", "Pod", "mine", "live"),
	} {
		api.put("/api/v1/namespaces/a/pods/"+name, meta)
	}
	var private atomic.Bool
	index := newIndex(t, s, api, func(o *ownership.Options) {
		o.Shared = func(name string) bool { return name != "second" && (name != "guestbook" || !private.Load()) }
	})
	runs(t, index)
	objects := []ownership.Object{
		object("apps/deployments/a/web"), object("/pods/a/web-1-0"), object("/pods/a/mine"), object("/pods/a/child"), object("/pods/a/grand"),
		{UID: "pod-0-uid"}, {AnyGroup: true, Kind: "Pod", Namespace: "a", Name: "web-1-0"},
		{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "web", UID: "web-uid"}, object("rbac.authorization.k8s.io/clusterroles//web"),
	}
	for _, hidden := range []bool{true, false, true, false} {
		private.Store(hidden)
		for _, o := range objects {
			require.Equal(t, hidden, lookup(t, index, o).Application == "", "%+v", o)
		}
		require.Equal(t, "other", lookup(t, index, object("/configmaps/b/settings")).Application)
		require.Equal(t, "other", lookup(t, index, object("/pods/a/both")).Application, "it belongs to one that is shared too")
	}
}
