// Package cache is an LRU cache of agents' values that is bounded by bytes.
package cache

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overhead is about what an entry takes besides its key and its value.
const overhead = 256

// ID is a key of an agent's Redis.
type ID struct{ Agent, Path string }

// Entry is a value that was read. All but Invalidated is never changed.
type Entry struct {
	ID ID
	// Instance is the application that it is about, as the agent calls it. It is empty when it is about none.
	Instance string
	// Value is a RESP bulk string. It is nil when there was none.
	Value []byte
	// Generation is that of the invalidation stream that was open when the value was read; 0 if none was.
	Generation uint64
	// Invalidated says that the value has changed, or may have.
	Invalidated bool
}

func (e *Entry) size() int64 {
	return int64(len(e.ID.Agent) + len(e.ID.Path) + len(e.Instance) + len(e.Value) + overhead)
}

// group identifies all entries of one application.
type group struct{ agent, instance string }

// Cache is not safe for concurrent use.
type Cache struct {
	limit  int64
	bytes  int64
	lru    *simplelru.LRU[ID, *Entry]
	groups map[group]map[ID]*Entry
}

// New returns a cache that holds up to so many bytes; 0 for nothing.
func New(limit int64) *Cache {
	c := &Cache{limit: limit, groups: make(map[group]map[ID]*Entry)}
	c.lru, _ = simplelru.NewLRU(math.MaxInt, c.evicted) // it fails for a size below 1
	return c
}

// Bytes returns how many bytes it holds.
func (c *Cache) Bytes() int64 { return c.bytes }

// Len returns how many entries it holds.
func (c *Cache) Len() int { return c.lru.Len() }

// Get returns an entry, or nil.
func (c *Cache) Get(id ID) *Entry {
	e, _ := c.lru.Get(id)
	return e
}

// Put stores an entry in place of the one with its ID, and evicts others if it must. An entry that is larger than the limit is
// not stored.
func (c *Cache) Put(e *Entry) {
	c.Remove(e.ID)
	if e.size() > c.limit {
		return
	}
	c.bytes += e.size()
	c.lru.Add(e.ID, e)
	g := group{e.ID.Agent, e.Instance}
	if c.groups[g] == nil {
		c.groups[g] = make(map[ID]*Entry)
	}
	c.groups[g][e.ID] = e
	for c.bytes > c.limit {
		c.lru.RemoveOldest()
	}
}

// Remove removes an entry.
func (c *Cache) Remove(id ID) { c.lru.Remove(id) }

// RemoveAgent removes all entries of an agent.
func (c *Cache) RemoveAgent(agent string) {
	for g, entries := range c.groups {
		if g.agent != agent {
			continue
		}
		for id := range entries {
			c.Remove(id)
		}
	}
}

// Invalidate marks all entries of an agent's application as invalidated.
func (c *Cache) Invalidate(agent, instance string) {
	for _, e := range c.groups[group{agent, instance}] {
		e.Invalidated = true
	}
}

// evicted is called for every entry that leaves the cache.
func (c *Cache) evicted(id ID, e *Entry) {
	c.bytes -= e.size()
	g := group{id.Agent, e.Instance}
	if delete(c.groups[g], id); len(c.groups[g]) == 0 {
		delete(c.groups, g)
	}
}
