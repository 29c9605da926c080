// Package ownership knows which objects of the spoke belong to which Argo CD application.
//
// Argo CD's application controller writes down in Redis, for each application, the tree of its resources: those that it
// manages, and what controllers made of them. Trees keeps an index of these: small, because it holds no more than hashes;
// read when it is first needed; and current, because the controller announces each change. A change only marks an
// application's tree as old, and it is read again when an answer depends on it. What is not in a tree yet because it was
// just made is looked up on the API server, by what Argo CD wrote on it or on its owners.
package ownership
