package ownership

import "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"

// choose returns the format that the controller writes now. Its version is the one that was last announced or else, of those
// that keys were found in, the one that is expected, or else the most common one: what an older Argo CD wrote lingers for
// an hour.
func choose(found map[keys.Format]int, announced string, expected keys.Format) keys.Format {
	const sure = 1 << 30
	best, most := expected, 0
	if announced != "" {
		best.Version = announced
	}
	for f, n := range found {
		if announced != "" && f.Version != announced {
			continue
		}
		if f.Version == expected.Version {
			n += 2 * sure
		}
		if f.Compressed == expected.Compressed {
			n += sure
		}
		if n > most || n == most && f.Version > best.Version {
			best, most = f, n
		}
	}
	return best
}
