package argocd

import (
	"maps"
	"slices"
)

// hasAddress reports whether a pattern that cannot deny is for the cluster's address.
func (c clusterNames) hasAddress(text string) bool {
	agent := agentIn(text)
	return text == "*" || readGlob(text).matches(c.work, c.server) || !agent.denies && agent.matches(c.work, c.agent)
}

// translate makes a spec say of one cluster alone, besides its destinations, what it says of clusters, as the other side
// calls that one: by an address, and in windows by any of some names.
func (c clusterNames) translate(spec map[string]any, address string, names ...any) {
	// Secrets of clusters are not shared, and the other side's belong to no project: this would let nothing be deployed.
	delete(spec, "permitOnlyProjectScopedClusters")
	filterObjects(spec, "syncWindows", func(window map[string]any) bool { return c.keepWindow(window, names) })
	filterObjects(spec, "destinationServiceAccounts", func(account map[string]any) bool {
		server, _ := account["server"].(string)
		account["server"] = address
		return c.hasAddress(server)
	})
}

// keepWindow translates the clusters of a time in which syncs are allowed or denied, and reports whether it may hold for
// any application there. Argo CD matches them with the name and with the address of a destination, as its application
// has them, and nothing denies (argo-cd, SyncWindows.Matches).
func (c clusterNames) keepWindow(window map[string]any, names []any) bool {
	clusters, _ := window["clusters"].([]any)
	if len(clusters) == 0 {
		return true
	}
	for _, cluster := range clusters {
		text, _ := cluster.(string)
		if readGlob(text).matches(c.work, c.name) || c.hasAddress(text) {
			window["clusters"] = names
			return true
		}
	}
	delete(window, "clusters")
	if all, _ := window["andOperator"].(bool); all {
		return false
	}
	applications, _ := window["applications"].([]any)
	namespaces, _ := window["namespaces"].([]any)
	return len(applications)+len(namespaces) > 0
}

// filterObjects replaces a list in a spec by those of its objects that a function keeps, which may change them.
func filterObjects(spec map[string]any, key string, keeps func(object map[string]any) bool) {
	list, ok := spec[key].([]any)
	if !ok {
		return
	}
	list = slices.Clone(list)
	kept := list[:0]
	for _, item := range list {
		original, _ := item.(map[string]any)
		if object := maps.Clone(original); object != nil && keeps(object) {
			kept = append(kept, object)
		}
	}
	if spec[key] = kept; len(kept) == 0 {
		delete(spec, key)
	}
}
