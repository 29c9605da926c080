package facets

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// refusal is a condition that says what the other side refuses, one for each facet. They are of
// one type: by how the message begins a facet knows its own, and leaves the others alone.
type refusal string

// ofIntent is that of what was asked for. All else is of the application itself, and so is what is not known: an agent of
// another kind may have been here before.
const ofIntent refusal = argocd.RefusedIntent

// refusalOf returns that of an application which a side refuses.
func refusalOf(side string) refusal { return refusal("The " + side + argocd.RefusesApplication) }

// delayOf returns the condition that is set and cleared in its place.
func delayOf(side string) refusal {
	return refusal("The " + side + " could not take this application yet, and tries again: ")
}

// isIn reports whether an application has this condition.
func (r refusal) isIn(app *argocd.App) bool {
	return slices.ContainsFunc(app.Status.AgentConditions, r.owns)
}

// set adds to a patch what gives an application this condition, with a reason. If it has it already, it stays as it is, and so
// does its time.
func (r refusal) set(app *argocd.App, patch *argocd.Patch, reason string) {
	message := shorten(string(r) + reason)
	mine := func(c argocd.Condition) bool { return c.Message == message }
	conditions := app.Status.AgentConditions
	if !slices.ContainsFunc(conditions, mine) {
		conditions = append(r.without(conditions), argocd.AgentCondition(message, time.Now()))
	}
	app.Status.PatchAgentConditions(patch, conditions)
}

// clear adds to a patch what takes this condition from an application.
func (r refusal) clear(app *argocd.App, patch *argocd.Patch) {
	app.Status.PatchAgentConditions(patch, r.without(app.Status.AgentConditions))
}

// without returns the conditions that are not this refusal's.
func (r refusal) without(conditions []argocd.Condition) []argocd.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), r.owns)
}

func (r refusal) owns(c argocd.Condition) bool { return kindOf(c.Message) == kindOf(string(r)) }

// kindOf returns how a message begins, if that is one by which a condition is known.
func kindOf(message string) refusal {
	for _, known := range []refusal{ofIntent, noteKinds["namespace"], noteKinds["destination"]} {
		if strings.HasPrefix(message, string(known)) {
			return known
		}
	}
	return ""
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
