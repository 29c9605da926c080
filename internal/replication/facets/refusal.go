package facets

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// refusal is what an application tells of what the other side refuses, by one condition for each facet. They are of
// one type: by how the message begins a facet knows its own, and leaves the others alone.
type refusal string

// ofIntent is that of what was asked for. All else is of the application itself, and so is what is not known: an agent of
// another kind may have been here before.
const ofIntent refusal = "The spoke refuses what was asked for: "

// refusalOf returns that of an application which a side refuses.
func refusalOf(side string) refusal { return refusal("The " + side + " refuses this application: ") }

// delayOf is told and withdrawn in its place.
func delayOf(side string) refusal {
	return refusal("The " + side + " could not take this application yet, and tries again: ")
}

// isIn reports whether an application tells of this refusal.
func (r refusal) isIn(app *argocd.App) bool {
	return slices.ContainsFunc(app.Status.AgentConditions, r.owns)
}

// tell adds to a patch what makes an application tell of this refusal and why. If it says so already, it stays as it is.
func (r refusal) tell(app *argocd.App, patch *argocd.Patch, reason string) {
	message := shorten(string(r) + reason)
	mine := func(c argocd.Condition) bool { return c.Message == message }
	if slices.ContainsFunc(app.Status.AgentConditions, mine) {
		return
	}
	app.Status.PatchAgentConditions(patch, append(r.without(app.Status.AgentConditions), argocd.AgentCondition(message, time.Now())))
}

// withdraw adds to a patch what makes an application no longer tell of this refusal.
func (r refusal) withdraw(app *argocd.App, patch *argocd.Patch) {
	app.Status.PatchAgentConditions(patch, r.without(app.Status.AgentConditions))
}

// without returns the conditions that are not this refusal's.
func (r refusal) without(troubles []argocd.Condition) []argocd.Condition {
	return slices.DeleteFunc(slices.Clone(troubles), r.owns)
}

func (r refusal) owns(c argocd.Condition) bool {
	return strings.HasPrefix(c.Message, string(ofIntent)) == (r == ofIntent)
}

// longest is how many bytes a message may have. The reason comes from the spoke, and everybody on the hub carries it about.
const longest = 1024

// shorten returns a message without what is no text, and without its end if it is too long.
func shorten(message string) string {
	const more = "…"
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	if len(message) <= longest {
		return message
	}
	end := longest - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}
