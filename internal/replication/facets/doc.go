// Package facets holds what is synchronised between a hub and its spokes: for each facet the source, which says what the
// peer should hold, and the replica, which makes it so through the API server.
//
// In managed mode:
//
//	facet               source  replica
//	application         hub     spoke    spec, labels, annotations, finalizers; deletion
//	application-intent  hub     spoke    sync, refresh, terminate: what a person asks for
//	application-status  spoke   hub      status, operations in progress, and which intents are over
//	appproject          hub     spoke    those for the agent, with its own destinations
//	repository          hub     spoke    Secrets of repositories, of projects for the agent
//	repo-creds          hub     spoke    Secrets of credentials for many repositories, likewise
//	gpg-keys            hub     spoke    the ConfigMap of keys
//
// In autonomous mode:
//
//	application         spoke   hub      spec, labels, annotations; as a person on the hub sees it
//	application-intent  hub     spoke
//	application-status  spoke   hub
//	appproject          spoke   hub      under a name that begins with the agent's
//
// [Hub.Share] and [Spoke.Share] are these tables. The other side's objects are replicas: each has, in annotations, the UID of
// its source object and the version that it was made of, together with its own version where that differs.
//
// # Intents
//
// A person asks for a sync by writing an application's operation on the hub, as argocd-server does, for a refresh by an
// annotation, and for the end of an operation by its phase. These stay on the hub's object until the spoke has done
// them, so neither a restart nor a disconnection loses one. Each operation and refresh gets an ID there, from the
// [IntentIDAssigner], before it is sent; the spoke stores that ID in the same write by which it takes the intent, so that
// none is taken twice. When it is over, the spoke's status says so by the same ID; the hub then withdraws the intent in
// the write that brings the status, and the spoke forgets the ID.
package facets

import "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"

// The facets, as they are named on the wire.
const (
	Application converge.Facet = "application"
	Intent      converge.Facet = "application-intent"
	Status      converge.Facet = "application-status"
	AppProject  converge.Facet = "appproject"
	Repository  converge.Facet = "repository"
	RepoCreds   converge.Facet = "repo-creds"
	GPGKeys     converge.Facet = "gpg-keys"
)
