package ownership

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

// DefaultMaxTree is how large a tree's text may become, all its parts together: a hundred times what a thousand objects take.
const DefaultMaxTree = 128 << 20

// maxShards is the most parts that Argo CD divides a tree into that are read.
const maxShards = 1024

// tree is what is needed of Argo CD's ApplicationTree. Its orphaned nodes are left out with reason: they are in the
// application's namespace, and do not belong to it.
type tree struct {
	Nodes       []node `json:"nodes"`
	ShardsCount int    `json:"shardsCount"`
}

type node struct {
	reference
	ParentRefs []reference `json:"parentRefs"`
}

type reference struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// decode reads a tree, or a part of one, as it is in Redis. Of how long its text may be it leaves what it did not need: what
// is packed is as long as its writer likes.
func (t *Trees) decode(f keys.Format, value []byte, left *int64) (tree, error) {
	var (
		part  tree
		plain io.Reader = bytes.NewReader(value)
	)
	if f.Compressed {
		inflated, err := gzip.NewReader(plain)
		if err != nil {
			return part, fmt.Errorf("inflate: %w", err)
		}
		plain = inflated
	}
	limited := &io.LimitedReader{R: plain, N: *left}
	err := json.NewDecoder(limited).Decode(&part)
	*left = limited.N
	switch {
	case limited.N <= 0:
		return part, fmt.Errorf("it is larger than %d KiB: divide the application", t.options.MaxTree>>10)
	case err == nil && (part.ShardsCount < 0 || part.ShardsCount > maxShards):
		return part, fmt.Errorf("it claims to have %d parts, and %d are the most: refresh the application", part.ShardsCount, maxShards)
	default:
		return part, err
	}
}

// entries returns the names of the nodes. A node is managed by the application itself if nothing in the tree is above it.
func (x *index) entries(nodes []node) []entry {
	known := make(map[uint64]struct{}, len(nodes))
	for _, n := range nodes {
		known[x.object(n.Group, n.Kind, n.Namespace, n.Name)] = struct{}{}
	}
	all := make([]entry, 0, 2*len(nodes))
	for _, n := range nodes {
		root := true
		for _, parent := range n.ParentRefs {
			if _, inside := known[x.object(parent.Group, parent.Kind, parent.Namespace, parent.Name)]; inside {
				root = false
			}
		}
		all = append(all, entry{x.object(n.Group, n.Kind, n.Namespace, n.Name), root})
		if n.UID != "" {
			all = append(all, entry{x.uid(n.UID), root})
		}
	}
	return all
}
