package connlimit

import (
	"container/list"
	"net"
	"net/netip"
)

// Queue holds those who have connected and not authenticated yet, the oldest first, by the address of each. When there are too many, the
// oldest of the address that has most makes room: a flood from one address ends its own connections, not those of others. The zero value
// is empty. It is not safe for concurrent use. The addresses of an IPv6 network of 64 bits count as one: every host has as many as it likes.
type Queue[T any] struct {
	all       list.List // of *Place[T]
	byAddress map[netip.Addr]int
}

// Place is a place in a Queue.
type Place[T any] struct {
	value   T
	address netip.Addr
	element *list.Element // nil when it has left
}

// Len returns how many there are.
func (q *Queue[T]) Len() int { return q.all.Len() }

// Join adds one at the end. Clients whose addresses are not of TCP share one.
func (q *Queue[T]) Join(value T, address net.Addr) *Place[T] {
	p := &Place[T]{value: value, address: NetworkOf(address)}
	if q.byAddress == nil {
		q.byAddress = make(map[netip.Addr]int)
	}
	q.byAddress[p.address]++
	p.element = q.all.PushBack(p)
	return p
}

// NetworkOf returns what of an address counts as one client: the IPv4 address, or the first address of the IPv6 network of 64 bits. It is
// the zero address for what is not of TCP.
func NetworkOf(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !ip.Is6() {
		return ip
	}
	return netip.PrefixFrom(ip, 64).Masked().Addr()
}

// Leave takes one out. It reports whether it was there.
func (q *Queue[T]) Leave(p *Place[T]) bool {
	if p == nil || p.element == nil {
		return false
	}
	q.all.Remove(p.element)
	p.element = nil
	if q.byAddress[p.address]--; q.byAddress[p.address] == 0 {
		delete(q.byAddress, p.address)
	}
	return true
}

// Drop takes out the oldest of the address that has most, and returns it. It reports false if there is none.
func (q *Queue[T]) Drop() (dropped T, ok bool) {
	most := 0
	for _, n := range q.byAddress {
		most = max(most, n)
	}
	for e := q.all.Front(); e != nil; e = e.Next() {
		if p, _ := e.Value.(*Place[T]); q.byAddress[p.address] == most {
			return p.value, q.Leave(p)
		}
	}
	return dropped, false
}
