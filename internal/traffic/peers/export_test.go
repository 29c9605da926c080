package peers

import (
	"maps"

	peerv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/peer/v1"
)

// TellAll tells another roster all that this principal holds, as a new connection does.
func (r *Roster) TellAll(other *Roster) {
	w := r.watch()
	defer r.unwatch(w)
	held := make(map[key]Holding)
	for _, update := range encode(r.take(w)) {
		some, _, err := decode(r.self.ID, update)
		if err != nil {
			panic(err)
		}
		maps.Copy(held, some)
	}
	other.update(r.self.ID, held, nil, true)
	other.join(r.self.ID)
}

// Forget says that a principal is not connected any more.
func (r *Roster) Forget(principal string) { r.forget(principal) }

// Said is what another principal says that it holds.
type Said struct {
	Agent string
	Epoch uint64
}

// Decode decodes an update of another principal.
func Decode(said Said) error {
	_, _, err := decode("other", &peerv1.RosterUpdate{Held: []*peerv1.Held{{Agent: said.Agent, Kind: Session, Epoch: said.Epoch}}})
	return err
}
