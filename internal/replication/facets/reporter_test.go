package facets_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// A refusal names the agent: there may be thousands. Whoever describes the object sees it too.
func TestRefusedObjectLogsAndCreatesEvent(t *testing.T) {
	bubble.Test(t, refusedObjectIsReported)
}

func refusedObjectIsReported(t *testing.T) {
	log := &logtest.Log{}
	var events []string
	var failure error
	warn := func(_ context.Context, about corev1.ObjectReference, reason, message string) error {
		events = append(events, strings.Join([]string{about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), reason, message}, "|"))
		return failure
	}
	report := facets.NewLogReporter(slog.New(slog.NewTextHandler(log, nil)), warn, nil).Object
	record := &argocd.Record{Head: argocd.Head{Name: types.NamespacedName{Namespace: "argocd", Name: "x"}, UID: "uid"}}
	report(t.Context(), "berlin", facets.Secret, record, converge.Result{Code: converge.Retry, Reason: "not yet"})
	require.Contains(t, log.String(), `msg="Agent failed to apply object; retrying" kind=Secret name=x reason="not yet" agent=berlin`)
	require.Empty(t, events, "it may pass")

	refused := converge.Result{Code: converge.Refused, Reason: "too red"}
	report(t.Context(), "berlin", facets.Secret, record, refused)
	report(t.Context(), "", facets.Project, record, refused)
	require.Contains(t, log.String(), `msg="Agent refused object" kind=Secret name=x reason="too red" agent=berlin`)
	require.Contains(t, log.String(), `msg="Hub refused object" kind=AppProject name=x reason="too red"`)
	require.Equal(t, []string{
		"v1|Secret|argocd|x|uid|RefusedByAgent|Agent berlin refused it: too red",
		"argoproj.io/v1alpha1|AppProject|argocd|x|uid|RefusedByHub|The hub refused it: too red",
	}, events)

	report(t.Context(), "berlin", facets.Secret, record, refused)
	require.Len(t, events, 2, "it goes on")
	require.Equal(t, 2, strings.Count(log.String(), `msg="Agent refused object"`))
	report(t.Context(), "berlin", facets.Secret, record, converge.Result{Code: converge.Refused, Reason: "too blue"})
	report(t.Context(), "paris", facets.Secret, record, refused)
	require.Len(t, events, 4)
	<-time.After(31 * time.Minute)
	report(t.Context(), "berlin", facets.Secret, record, refused)
	require.Len(t, events, 5, "Events are forgotten")

	failure = errors.New("no events here")
	report(t.Context(), "", facets.Project, record, refused)
	require.Contains(t, log.String(), `msg="Failed to create Event"`)
}

// One cause may refuse the statuses of all applications, and is seen at every retry. It fills neither the log nor etcd.
func TestRefusedStatusIsReportedAtALimitedRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		log := &logtest.Log{}
		var events []string
		warn := func(_ context.Context, about corev1.ObjectReference, reason, message string) error {
			require.Equal(t, "Application", about.Kind)
			events = append(events, about.Name+" "+reason+" "+message)
			return nil
		}
		report := facets.NewLogReporter(slog.New(slog.NewTextHandler(log, nil)), warn, nil)
		app := func(name string) *argocd.App {
			return &argocd.App{Head: argocd.Head{Name: types.NamespacedName{Namespace: "berlin", Name: name}, UID: types.UID(name)}}
		}
		refused := converge.Result{Code: converge.Refused, Reason: "too green"}
		report.StatusRefusedHere(t.Context(), "berlin", app("one"), "too green")
		report.StatusRefusedHere(t.Context(), "berlin", app("one"), "too green")
		report.StatusRefusedByHub(t.Context(), app("two"), converge.Result{Code: converge.Retry, Reason: "too green"})
		report.StatusRefusedByHub(t.Context(), app("two"), refused)
		report.StatusRefusedByHub(t.Context(), app("two"), refused)
		report.Pruned(t.Context(), app("three"))
		report.Pruned(t.Context(), app("three"))
		require.Equal(t, []string{
			"one StatusRefused The status that agent berlin sent could not be written: too green",
			"two StatusRefusedByHub The hub refused its status: too green",
			"three CreatedAgain It was deleted on this cluster, where the hub decides, and was created again. Resources that Argo CD pruned with it " +
				"stay away until a sync: sync it on the hub, or have the agent run with --on-application-recreate=resync",
		}, events)
		for _, line := range []string{
			`msg="Failed to write application status" agent=berlin application=berlin/one reason="too green"`,
			`msg="Hub failed to write application status; retrying" application=berlin/two reason="too green"`,
			`msg="Hub refused application status" application=berlin/two reason="too green"`,
		} {
			require.Equal(t, 1, strings.Count(log.String(), line), line)
		}
		many := func() {
			for n := range 1000 {
				report.StatusRefusedByHub(t.Context(), app(fmt.Sprint(n)), refused)
			}
		}
		many()
		require.Len(t, events, 19)
		<-time.After(10 * time.Second)
		many()
		require.Len(t, events, 29)
	})
}
