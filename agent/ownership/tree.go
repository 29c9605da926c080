package ownership

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

// DefaultMaxTree bounds the uncompressed JSON of a tree, all shards together. It is a hundred times that of a thousand objects.
const DefaultMaxTree = 128 << 20

// maxShards bounds the shards of a tree.
const maxShards = 1024

// tree is a part of Argo CD's ApplicationTree. It leaves out the orphaned nodes, which are in the Application's namespace but do
// not belong to it.
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

// decode parses a shard of a tree. It subtracts the size of its JSON from left, which bounds it: compressed data can inflate
// to any size.
func (x *Index) decode(f keys.Format, value []byte, left *int64) (tree, error) {
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
		return part, fmt.Errorf("it is larger than %d KiB: split the Application", x.options.MaxTree>>10)
	case err == nil && (part.ShardsCount < 0 || part.ShardsCount > maxShards):
		return part, fmt.Errorf("it has %d shards, and the limit is %d: refresh the Application", part.ShardsCount, maxShards)
	default:
		return part, err
	}
}

// objectsOf returns the hashes of the nodes. A node without a parent in the tree is managed by the application itself.
func (m *ownerMap) objectsOf(nodes []node) []ownedObject {
	known := make(map[uint64]struct{}, len(nodes))
	for _, n := range nodes {
		known[m.hashName(n.Group, n.Kind, n.Namespace, n.Name)] = struct{}{}
	}
	all := make([]ownedObject, 0, 2*len(nodes))
	for _, n := range nodes {
		root := true
		for _, parent := range n.ParentRefs {
			if _, inside := known[m.hashName(parent.Group, parent.Kind, parent.Namespace, parent.Name)]; inside {
				root = false
			}
		}
		all = append(all, ownedObject{m.hashName(n.Group, n.Kind, n.Namespace, n.Name), root})
		if n.UID != "" {
			all = append(all, ownedObject{m.hashUID(n.UID), root})
		}
	}
	return all
}
