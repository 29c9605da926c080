package routes

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// DumpPath is where the dump is served.
const DumpPath = "/routes"

// dump is what people see of a Table and its Server.
type dump struct {
	Principals []dumpPrincipal `json:"principals"`
	// Agents are the names of principals, by the names of agents.
	Agents       map[string]string `json:"agents"`
	UnknownHosts int               `json:"unknownHosts"`
	Clients      []Subscriber      `json:"clients"`
}

type dumpPrincipal struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Build   string `json:"build"`
	Address string `json:"address"`
	Agents  int    `json:"agents"`
	// Gone is since when the principal is not connected any more.
	Gone *time.Time `json:"gone,omitempty"`
}

// Dump serves, to people, which agents go where and who is told so, as JSON.
func Dump(table *Table, server *Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "GET only", http.StatusMethodNotAllowed)
			return
		}
		now := table.dump()
		now.Clients = server.Subscribers()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(now) // who hung up needs no answer
	})
}

func (t *Table) dump() dump {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := dump{Agents: t.hosts.holders()}
	_, d.UnknownHosts = t.hosts.counts()
	holds := make(map[string]int, len(t.principals))
	for agent, id := range d.Agents {
		holds[id]++
		d.Agents[agent] = t.principals[id].Name
	}
	for id, k := range t.principals {
		p := dumpPrincipal{ID: id, Name: k.Name, Build: k.Build, Address: k.Address, Agents: holds[id]}
		if !k.gone.IsZero() {
			p.Gone = &k.gone
		}
		d.Principals = append(d.Principals, p)
	}
	slices.SortFunc(d.Principals, func(a, b dumpPrincipal) int { return strings.Compare(a.ID, b.ID) })
	return d
}
