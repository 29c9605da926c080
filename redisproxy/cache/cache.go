// Package cache keeps the last value of keys, up to so many bytes. What has not been asked for longest goes first.
package cache

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// overhead is about what an entry takes besides its key and its value.
const overhead = 256

// ID is a key of an agent's Redis.
type ID struct{ Agent, Path string }

// Entry is a value that was read. All but Outdated is never changed.
type Entry struct {
	ID ID
	// Instance is the application that it is about, as the agent calls it. It is empty when it is about none.
	Instance string
	// Value is a RESP bulk string. It is nil when there was none.
	Value []byte
	// Life is which one of the agent's feeds would have told of a change.
	Life uint64
	// Outdated says that there has been a change, or may have been.
	Outdated bool
}

func (e *Entry) size() int64 {
	return int64(len(e.ID.Agent) + len(e.ID.Path) + len(e.Instance) + len(e.Value) + overhead)
}

// group is all that is known of one application.
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
	c.lru, _ = simplelru.NewLRU(math.MaxInt, c.dropped) // it fails for a size below 1
	return c
}

// Bytes is how much it holds.
func (c *Cache) Bytes() int64 { return c.bytes }

// Len is how many entries it holds.
func (c *Cache) Len() int { return c.lru.Len() }

// Get returns an entry, or nil.
func (c *Cache) Get(id ID) *Entry {
	e, _ := c.lru.Get(id)
	return e
}

// Put keeps an entry instead of the one that has its ID, and lets go of others if it must. An entry that is larger than all
// that may be held is not kept.
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

// Remove lets go of an entry.
func (c *Cache) Remove(id ID) { c.lru.Remove(id) }

// Outdate notes that an agent's application has changed.
func (c *Cache) Outdate(agent, instance string) {
	for _, e := range c.groups[group{agent, instance}] {
		e.Outdated = true
	}
}

// dropped is told of every entry that goes.
func (c *Cache) dropped(id ID, e *Entry) {
	c.bytes -= e.size()
	g := group{id.Agent, e.Instance}
	if delete(c.groups[g], id); len(c.groups[g]) == 0 {
		delete(c.groups, g)
	}
}
