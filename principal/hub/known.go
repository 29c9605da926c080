package hub

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// Knows reports whether the hub has heard of an agent: it has a cluster Secret of its name, an Application for it, or a namespace of
// its name. A hub that has not is the source of nothing for that agent: a comparison with it would delete all that the agent holds.
// With an error nobody knows.
func (h *Hub) Knows(ctx context.Context, agent string) (bool, error) {
	if h.options.Clusters.Has(agent) {
		return true, nil
	}
	for range h.cluster.Store.Group(agent) {
		return true, nil
	}
	namespace, err := metadataOf(ctx, h.options.API, namespacePath(agent))
	return namespace != nil && namespace.DeletionTimestamp == nil, err
}

func namespacePath(name string) string { return "/api/v1/namespaces/" + name }

// metadataOf reads the metadata of an object from the API server, by its path; nil if there is no such object.
func metadataOf(ctx context.Context, api rest.Interface, path string) (*metav1.PartialObjectMetadata, error) {
	var object metav1.PartialObjectMetadata
	_, err := kube.Ask(ctx, api, func() error {
		answer := api.Get().AbsPath(path).SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx)
		body, err := answer.Raw()
		if err != nil {
			return answer.Error() // which says what the API server said; Raw's says only that it said something
		}
		return json.Unmarshal(body, &object)
	})
	switch {
	case apierrors.IsNotFound(err) && !kube.IsForeign(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &object, nil
}
