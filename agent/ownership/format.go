package ownership

import "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"

// usualFormat returns the format that Argo CD's keys have, unchanged for many releases. If Redis has only keys of another, or the
// controller's notifications name another version, that is used.
func usualFormat() keys.Format { return keys.Format{Version: "1.8.3", Compressed: true} }

// chooseFormat returns the format of the keys that the controller writes now. Its version is the one in the last notification.
// Without one it is the expected version, if there are keys of it, and otherwise the most common one: keys of an older Argo CD
// stay for an hour.
func chooseFormat(found map[keys.Format]int, announced string) keys.Format {
	const sure = 1 << 30
	expected := usualFormat()
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
