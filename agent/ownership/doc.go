// Package ownership knows which objects of the spoke belong to which Application.
//
// Argo CD's application controller writes the resource tree of each Application to Redis: the objects that it manages, and
// the children that controllers created from them. Index is a cache of these trees. It is small, because it holds only
// hashes. It is lazy: it reads a tree when it first needs it. It is current, because the controller publishes a notification
// of each change: a notification marks a tree as stale, and the tree is read again when a lookup depends on it. An object that
// is too new to be in a tree is looked up on the API server, by what Argo CD wrote on it or on its owners.
package ownership
