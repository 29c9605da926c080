package argocd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// What a spoke reports of its operations the hub shows as a display copy: who began one, when, how it went. No controller can
// run it (argo-cd, appStateManager.SyncAppState fails an operation without sync), and nothing in it is taken for an intent:
// of the infos those are dropped whose names begin with ownPrefix. The copy names the agent that it is of, so that it can be
// told from what the hub's own controllers write, and leaves with the agent.

// phaseEnds has the phases of operations that are over, which no controller resumes (gitops-engine, OperationPhase.Completed).
var phaseEnds = map[string]bool{"Succeeded": true, "Failed": true, "Error": true} //nolint:gochecknoglobals // a constant

// DisplayOperation returns what the hub shows of an operation that an agent reports as being in progress, with one info of
// ours: InfoMirror with a value.
func DisplayOperation(operation json.RawMessage, mirror string) (json.RawMessage, error) {
	o, err := decodeObject(operation)
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	return json.Marshal(displayOperation(o, "", mirror))
}

// displayOperation returns the display copy of a decoded operation in a phase. mirror is the value of InfoMirror, empty for
// none. Only the operation of a phase that is an end keeps that it was a sync, and of which revisions.
func displayOperation(o map[string]any, phase, mirror string) map[string]any {
	out := make(map[string]any)
	if by, ok := o["initiatedBy"].(map[string]any); ok {
		who := make(map[string]any)
		if name, ok := by["username"].(string); ok {
			who["username"] = name
		}
		if automated, ok := by["automated"].(bool); ok {
			who["automated"] = automated
		}
		out["initiatedBy"] = who
	}
	var infos []any
	for _, i := range infosOf(o) {
		if !strings.HasPrefix(i.Name, ownPrefix) {
			infos = append(infos, i)
		}
	}
	if mirror != "" {
		infos = append(infos, Info{Name: InfoMirror, Value: mirror})
	}
	if infos != nil {
		out["info"] = infos
	}
	if sync, ok := o["sync"].(map[string]any); ok && phaseEnds[phase] {
		out["sync"] = displaySync(sync)
	}
	return out
}

// displaySync returns what is shown of a sync that is over.
func displaySync(sync map[string]any) map[string]any {
	out := make(map[string]any)
	if revision, ok := sync["revision"].(string); ok {
		out["revision"] = revision
	}
	if list, ok := sync["revisions"].([]any); ok {
		revisions := []any{}
		for _, item := range list {
			if revision, ok := item.(string); ok {
				revisions = append(revisions, revision)
			}
		}
		out["revisions"] = revisions
	}
	return out
}

// infosOf returns the infos of a decoded operation.
func infosOf(o map[string]any) []Info {
	list, _ := o["info"].([]any)
	var infos []Info
	for _, item := range list {
		i, _ := item.(map[string]any)
		name, named := i["name"].(string)
		value, _ := i["value"].(string)
		if named {
			infos = append(infos, Info{Name: name, Value: value})
		}
	}
	return infos
}

// DisplayStatus returns a status as the hub shows it, as that of an agent; of none if that is empty. History is only shown
// with an operation's state, which names the agent that wrote both.
func DisplayStatus(raw json.RawMessage, agent string) (json.RawMessage, error) {
	if present(raw) == nil {
		return raw, nil
	}
	var status, state map[string]json.RawMessage
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	if present(status["operationState"]) == nil {
		if _, is := status["history"]; !is {
			return raw, nil
		}
		delete(status, "operationState")
		delete(status, "history")
		return json.Marshal(status)
	}
	if err := json.Unmarshal(status["operationState"], &state); err != nil {
		return nil, fmt.Errorf("status.operationState: %w", err)
	}
	operation, err := decodeObject(state["operation"])
	if err != nil {
		return nil, fmt.Errorf("status.operationState.operation: %w", err)
	}
	if state["operation"], err = json.Marshal(displayOperation(operation, phaseOf(state), agent)); err != nil {
		return nil, fmt.Errorf("status.operationState.operation: %w", err)
	}
	if status["operationState"], err = json.Marshal(state); err != nil {
		return nil, fmt.Errorf("status.operationState: %w", err)
	}
	return json.Marshal(status)
}

// phaseOf returns the phase of an operation's state.
func phaseOf(state map[string]json.RawMessage) string {
	var phase string
	if json.Unmarshal(state["phase"], &phase) != nil {
		return ""
	}
	return phase
}

// shown is what a status says of the agent that wrote it.
type shown struct {
	agent  string // by InfoMirror, empty if by none
	intact bool   // it is a display copy, as DisplayStatus makes it
	any    bool   // there is anything in it that names an agent
}

// readShown returns what a status says of the agent that wrote it.
func readShown(e *excerpt) shown {
	s := shown{any: present(e.OperationState.Operation) != nil || present(e.History) != nil || e.OperationState.Phase != ""}
	o, err := decodeObject(e.OperationState.Operation)
	if err != nil || e.OperationState.Phase == "" {
		return s
	}
	for _, i := range infosOf(o) {
		if i.Name == InfoMirror {
			s.agent = i.Value
		}
	}
	is, err := json.Marshal(o)
	if err != nil {
		return s
	}
	should, err := json.Marshal(displayOperation(o, e.OperationState.Phase, s.agent))
	s.intact = err == nil && bytes.Equal(is, should)
	return s
}

// VersionOf returns the version of a status that the hub shows as an agent's. It is none of the agent's if it is not a
// display copy of that agent's.
func (s Status) VersionOf(agent string) converge.Version {
	if s.shown.any && (s.shown.agent != agent || !s.shown.intact) {
		return converge.VersionOf([]byte("of no agent: " + s.Version.String()))
	}
	return s.Version
}

// ShownFor returns the agent of which the status is a display copy, empty if of none.
func (s Status) ShownFor() string { return s.shown.agent }

// RemoveReport adds to a patch what takes the operation's state and the history from the status.
func (s Status) RemoveReport(p *Patch) {
	p.Remove("status", "operationState")
	if s.hasHistory {
		p.Remove("status", "history")
	}
}
