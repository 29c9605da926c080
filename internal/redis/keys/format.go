package keys

import (
	"slices"
	"strconv"
	"strings"
)

const gzipped = ".gz"

// Format is how an Argo CD of some version and settings ends its keys.
type Format struct {
	Version    string
	Compressed bool
}

// Format returns the format of a key. The zero Format is that of no key.
func (k Key) Format() Format {
	version, compressed := strings.CutSuffix(k.Rest[strings.LastIndexByte(k.Rest, '|')+1:], gzipped)
	return Format{Version: version, Compressed: compressed}
}

// Sharded reports whether a part of an application's tree is kept under a key that is not the first, which has no number.
func (k Key) Sharded() bool { return strings.Count(k.Rest, "|") > 1 }

// Tree returns the key of an application's tree, or of one of its parts if shard is not 0.
func (s Space) Tree(application string, shard int, f Format) string {
	rest := "|" + f.Version
	if shard > 0 {
		rest = "|" + strconv.Itoa(shard) + rest
	}
	if f.Compressed {
		rest += gzipped
	}
	return s.Prefix + Key{Kind: Tree, Rest: rest}.Path(application)
}

// Begins reports whether a name begins as the keys of one of these kinds do.
func (s Space) Begins(name string, kinds ...Kind) bool {
	path, ok := strings.CutPrefix(name, s.Prefix)
	return ok && slices.ContainsFunc(kinds, func(k Kind) bool { return strings.HasPrefix(path, Key{Kind: k}.Path("")) })
}

// Tracked returns what the keys begin with whose changes CLIENT TRACKING is asked for.
func (s Space) Tracked() []string { return []string{s.Prefix + application, s.Prefix + cluster} }

// Pattern returns a pattern of Redis that matches all keys of a kind, or, for Managed, all channels.
func (s Space) Pattern(kind Kind) string { return escape(s.Prefix+Key{Kind: kind}.Path("")) + "*" }

// escape returns a pattern that matches a text and nothing else.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}

// PatternHead returns what all that a pattern of Redis matches begins with: what stands before its first wildcard.
func PatternHead(pattern string) string {
	var literal []byte
	for i := 0; i < len(pattern) && strings.IndexByte("*?[", pattern[i]) < 0; i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		literal = append(literal, pattern[i])
	}
	return string(literal)
}
