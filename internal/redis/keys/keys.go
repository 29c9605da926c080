// Package keys parses the keys and channels of Argo CD's Redis that belong to an application or to a cluster.
//
//	[prefix]app|resources-tree|<instance>[|<shard>]|<version>[.gz]
//	[prefix]app|managed-resources|<instance>|<version>[.gz]
//	[prefix]cluster|info|<server>|<version>[.gz]
//	[prefix]app|managed-resources|<instance>|<version>            (a channel; the tree's changes are announced there too)
//
// An instance is how Argo CD calls an application: its name, or <namespace>_<name>. The versions and the ending are those of
// the Argo CD that asks, and are handed on as they are.
package keys

import "strings"

// maxLength bounds a key. A longer one belongs to no application: names have 253 characters at most.
const maxLength = 2048

const (
	application = "app|"
	tree        = application + "resources-tree|"
	managed     = application + "managed-resources|"
	cluster     = "cluster|info|"

	// local is how an Argo CD calls the cluster that it runs on.
	local = "https://kubernetes.default.svc"
)

// Kind is what is kept under a key.
type Kind uint8

// The kinds of key.
const (
	None    Kind = iota // nothing that concerns an application or a cluster
	Tree                // the resources of an application
	Managed             // the live and the wanted state of what an application manages
	Cluster             // the state of a cluster
)

// Key is a key, or a channel, taken apart.
type Key struct {
	Kind Kind
	// Name is the application's instance, or the cluster's URL.
	Name string
	// Rest is what follows the name: the shard, if there is one, the version, and the ending.
	Rest string
}

// Path is the key as an Argo CD has it that knows its subject by another name, without its prefix.
func (k Key) Path(name string) string {
	switch k.Kind {
	case Tree:
		return tree + name + k.Rest
	case Managed:
		return managed + name + k.Rest
	case Cluster:
		return cluster + name + k.Rest
	default:
		return ""
	}
}

// LocalCluster is the path of the state of the cluster that an Argo CD runs on, in the same version and with the same ending.
func (k Key) LocalCluster() string { return cluster + local + k.Rest }

// Compressed reports whether what is kept under the key went through gzip.
func (k Key) Compressed() bool { return strings.HasSuffix(k.Rest, gzipped) }

// Space is all keys and channels of one Argo CD, which may share its Redis with others.
type Space struct {
	// Prefix begins each of them. It may be empty.
	Prefix string
}

// Key takes a key apart. Its Kind is None for one that does not concern an application or a cluster.
func (s Space) Key(raw []byte) Key {
	if !s.Maybe(raw) {
		return Key{}
	}
	return parse(string(raw[len(s.Prefix):]))
}

// Maybe is a quick look at a key, which most do not pass. Key decides about those that do.
func (s Space) Maybe(raw []byte) bool {
	if len(raw) < len(s.Prefix)+len(cluster) || len(raw) > maxLength || string(raw[:len(s.Prefix)]) != s.Prefix {
		return false
	}
	switch rest := raw[len(s.Prefix):]; rest[0] {
	case 'a':
		return string(rest[:len(application)]) == application
	case 'c':
		return string(rest[:len(cluster)]) == cluster
	default:
		return false
	}
}

// Channel takes a channel apart on which changes of an application are announced. ok is false for all others.
func (s Space) Channel(raw string) (k Key, ok bool) {
	path, found := strings.CutPrefix(raw, s.Prefix)
	if !found || len(raw) > maxLength || !strings.HasPrefix(path, managed) {
		return Key{}, false
	}
	k = parse(path)
	return k, k.Kind == Managed && !k.Compressed()
}

func parse(path string) Key {
	if rest, ok := strings.CutPrefix(path, tree); ok {
		name, rest, _ := strings.Cut(rest, "|")
		shard, version, sharded := strings.Cut(rest, "|")
		if name == "" || (sharded && (!digits(shard) || !plain(version))) || (!sharded && !plain(rest)) {
			return Key{}
		}
		return Key{Kind: Tree, Name: name, Rest: "|" + rest}
	}
	if rest, ok := strings.CutPrefix(path, managed); ok {
		name, version, _ := strings.Cut(rest, "|")
		if name == "" || !plain(version) {
			return Key{}
		}
		return Key{Kind: Managed, Name: name, Rest: "|" + version}
	}
	if rest, ok := strings.CutPrefix(path, cluster); ok {
		end := strings.LastIndexByte(rest, '|') // a URL may hold one
		if end <= 0 || !plain(rest[end+1:]) {
			return Key{}
		}
		return Key{Kind: Cluster, Name: rest[:end], Rest: rest[end:]}
	}
	return Key{}
}

// plain reports whether it may be a version with its ending.
func plain(version string) bool {
	return version != "" && version != gzipped && !strings.Contains(version, "|")
}

func digits(text string) bool {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return text != ""
}
