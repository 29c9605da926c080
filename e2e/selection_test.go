package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

const ignored = "argocd-agent.argoproj-labs.io/ignore-sync"

func TestLabelSelectorLimitsMirroredApplications(t *testing.T) {
	t.Parallel()
	const selector = "--label-selector=share=yes"
	public := label("share", "yes")
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{selector}})
	s, app := newAutonomous(t, "selecting", lab.AgentOptions{Principal: principal, Args: []string{selector}}, public)
	app.shown(t)
	private := s.newOwn("private").createOnSpoke(t)
	later := s.newOwn("later").createOnSpoke(t, public)
	later.shown(t)
	require.False(t, private.hub.exists(t))
	private.spoke.edit(t, public)
	private.shown(t)

	// What loses its label, or is to be ignored, goes from the hub only.
	app.spoke.edit(t, label("share", ""))
	app.hub.vanishes(t)
	require.Nil(t, app.spoke.get(t).GetDeletionTimestamp())
	later.spoke.edit(t, label(ignored, "true"))
	later.hub.vanishes(t)
	require.Nil(t, later.spoke.get(t).GetDeletionTimestamp())
}

func TestLabelSelectorLimitsMirroredProjects(t *testing.T) {
	t.Parallel()
	const selector = "--label-selector=share=yes"
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{selector}})
	s := newSite(t, "choosing", lab.AgentOptions{Mode: "autonomous", Principal: principal, Args: []string{selector}})
	own := project(s.spoke, s.name, "own").declare(t, "AppProject", projectFor("*"), label("share", "yes"))
	shown := project(shared.Hub, lab.Namespace, s.name+"-own")
	shown.becomes(t)
	own.edit(t, label("share", ""))
	shown.vanishes(t)
	own.get(t)
}

// The copy goes without its resources, though there is a finalizer by which they would go with it.
func TestApplicationLosesSelectorLabel(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ignoring", lab.AgentOptions{}).connected(t)
	app := s.newTwin("ignored").create(t, finalize(cascadeFinalizer))
	app.arrives(t)
	original := app.hub.get(t)
	app.hub.edit(t, label(ignored, "true"))
	app.spoke.vanishes(t)
	app.hub.remains(t, original)
	app.hub.edit(t, label(ignored, ""))
	app.arrives(t)
	app.hub.edit(t, finalize()) // nobody here works it off
}

func TestDisallowedHubNamespaceIsNotTouched(t *testing.T) {
	t.Parallel()
	principal := newPrincipal(t, lab.PrincipalOptions{Args: []string{"--allowed-namespaces=admitted*"}})
	admitted := newSite(t, "admitted", lab.AgentOptions{Principal: principal}).connected(t)
	outside := newSite(t, "outside", lab.AgentOptions{Principal: principal}).connected(t)
	left := outside.newTwin("left").create(t)
	admitted.newTwin("taken").create(t).arrives(t)
	says(t, principal, "Ignored Applications in a namespace that is not allowed", "namespace="+outside.name)
	require.False(t, left.spoke.exists(t))
}
