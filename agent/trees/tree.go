package trees

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxTree is how large a tree's text may become: a hundred times what a thousand objects take.
const maxTree = 128 << 20

// maxShards is the most parts that Argo CD divides a tree into that are read.
const maxShards = 1024

var errTooLarge = errors.New("it is too large")

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

// decode reads a tree, or a part of one, as it is in Redis.
func decode(value []byte, compressed bool) (tree, error) {
	var (
		t     tree
		plain io.Reader = bytes.NewReader(value)
	)
	if compressed {
		inflated, err := gzip.NewReader(plain)
		if err != nil {
			return t, fmt.Errorf("inflate: %w", err)
		}
		plain = inflated
	}
	limited := &io.LimitedReader{R: plain, N: maxTree}
	err := json.NewDecoder(limited).Decode(&t)
	if limited.N <= 0 {
		err = errTooLarge
	}
	if err == nil && (t.ShardsCount < 0 || t.ShardsCount > maxShards) {
		err = errTooLarge
	}
	return t, err
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
