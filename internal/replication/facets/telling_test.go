package facets_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// A refusal names the agent: there may be thousands. Whoever describes the object sees it too.
func TestARefusalIsToldInTheLogAndByAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, refusalsAreTold)
}

func refusalsAreTold(t *testing.T) {
	log := &logtest.Log{}
	var events []string
	var failure error
	tell := (&facets.Telling{
		Logger: slog.New(slog.NewTextHandler(log, nil)),
		Warn: func(_ context.Context, about corev1.ObjectReference, reason, message string) error {
			events = append(events, strings.Join([]string{about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), reason, message}, "|"))
			return failure
		},
	}).Tell
	record := &argocd.Record{Head: argocd.Head{Name: types.NamespacedName{Namespace: "argocd", Name: "x"}, UID: "uid"}}
	tell(t.Context(), "berlin", facets.Secret, record, converge.Result{Code: converge.Retry, Reason: "not yet"})
	require.Contains(t, log.String(), `msg="An agent could not take an object yet, and is asked again" kind=Secret name=x reason="not yet" agent=berlin`)
	require.Empty(t, events, "it may pass")

	refused := converge.Result{Code: converge.Refused, Reason: "too red"}
	tell(t.Context(), "berlin", facets.Secret, record, refused)
	tell(t.Context(), "", facets.Project, record, refused)
	require.Contains(t, log.String(), `msg="An agent refuses an object" kind=Secret name=x reason="too red" agent=berlin`)
	require.Contains(t, log.String(), `msg="The hub refuses an object" kind=AppProject name=x reason="too red"`)
	require.Equal(t, []string{
		"v1|Secret|argocd|x|uid|RefusedByAgent|Agent berlin refuses it: too red",
		"argoproj.io/v1alpha1|AppProject|argocd|x|uid|RefusedByHub|The hub refuses it: too red",
	}, events)

	tell(t.Context(), "berlin", facets.Secret, record, refused)
	require.Len(t, events, 2, "it goes on")
	require.Equal(t, 2, strings.Count(log.String(), `msg="An agent refuses an object"`))
	tell(t.Context(), "berlin", facets.Secret, record, converge.Result{Code: converge.Refused, Reason: "too blue"})
	tell(t.Context(), "paris", facets.Secret, record, refused)
	require.Len(t, events, 4)
	<-time.After(31 * time.Minute)
	tell(t.Context(), "berlin", facets.Secret, record, refused)
	require.Len(t, events, 5, "Events are forgotten")

	failure = errors.New("no events here")
	tell(t.Context(), "", facets.Project, record, refused)
	require.Contains(t, log.String(), `msg="Write an Event"`)
}
