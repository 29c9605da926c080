package ownership

import (
	"strconv"
	"strings"
)

const (
	treeKey   = "app|resources-tree|"
	noticeKey = "app|managed-resources|"
	gzipped   = ".gz"
)

// format is how Argo CD's version and settings write keys.
type format struct {
	version    string
	compressed bool
}

// key returns the key of a tree, or of one of its parts if that is not the first.
func (f format) key(prefix, application string, shard int) string {
	key := prefix + treeKey + application
	if shard > 0 {
		key += "|" + strconv.Itoa(shard)
	}
	key += "|" + f.version
	if f.compressed {
		key += gzipped
	}
	return key
}

// parseKey reads the key of a tree's first part. Other parts and other keys are not ok.
func parseKey(prefix, key string) (application string, f format, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix+treeKey)
	if !ok {
		return "", f, false
	}
	application, f.version, ok = strings.Cut(rest, "|")
	f.version, f.compressed = strings.CutSuffix(f.version, gzipped)
	return application, f, ok && application != "" && f.version != "" && !strings.Contains(f.version, "|")
}

// parseChannel reads the channel of a notice.
func parseChannel(prefix, channel string) (application, version string, ok bool) {
	rest, ok := strings.CutPrefix(channel, prefix+noticeKey)
	if !ok {
		return "", "", false
	}
	application, version, ok = strings.Cut(rest, "|")
	return application, version, ok && application != "" && version != "" && !strings.Contains(version, "|")
}

// glob returns a pattern of Redis that matches what begins with a text.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text) + "*"
}

// choose returns the format that the controller writes now. Its version is the one that was last announced or else, of those
// that keys were found in, the one that is expected, or else the most common one: what an older Argo CD wrote lingers for
// an hour.
func choose(found map[format]int, announced string, expected format) format {
	const sure = 1 << 30
	best, most := expected, 0
	if announced != "" {
		best.version = announced
	}
	for f, n := range found {
		if announced != "" && f.version != announced {
			continue
		}
		if f.version == expected.version {
			n += 2 * sure
		}
		if f.compressed == expected.compressed {
			n += sure
		}
		if n > most || n == most && f.version > best.version {
			best, most = f, n
		}
	}
	return best
}
