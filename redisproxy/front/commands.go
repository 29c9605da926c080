package front

import "strings"

// verb is what a command does to the connection that it is sent on.
type verb uint8

const (
	plain       verb = iota // nothing that concerns us
	identify                // AUTH, HELLO, SELECT, RESET: decide as who, and how, the rest is answered
	queue                   // MULTI: what follows is answered later
	unqueue                 // EXEC, DISCARD
	watch                   // WATCH
	unwatch                 // UNWATCH
	subscribe               // has Redis send messages
	unsubscribe             // and stop that
	talk                    // MONITOR: has Redis send what nobody asked for
	client                  // CLIENT: depends on what follows
	quit                    // QUIT
	refuse                  // cannot be served through a proxy that answers some commands itself
)

// place says which of a command's arguments are keys, as far as that is needed here.
type place uint8

const (
	nowhere place = iota
	first
	every
	pairs // every other one: a key and its value
)

// command is what is to be known of a command.
type command struct {
	verb verb
	// shares says that it leaves nothing behind on a connection, and never waits there.
	shares bool
	keys   place
	// reads says that we can answer it for a key of an agent's.
	reads bool
}

// commands is by name, in lower case. A command that it does not hold goes to the hub's Redis over the client's own
// connection.
type commands map[string]command

// longest is the length of the longest name in commands.
const longest = 16

func newCommands() commands {
	table := commands{}
	add := func(names string, c command) {
		for name := range strings.FieldsSeq(names) {
			table[name] = c
		}
	}
	add("get ttl pttl strlen type", command{shares: true, keys: first, reads: true})
	add("mget exists", command{shares: true, keys: every, reads: true})
	add("set setex psetex setnx getset getdel getex append incr decr incrby decrby incrbyfloat expire pexpire expireat "+
		"pexpireat persist setrange setbit hset hmset hsetnx hdel hincrby sadd srem lpush rpush lpop rpop zadd zrem spop "+
		"ltrim lset restore", command{shares: true, keys: first})
	add("del unlink rename renamenx", command{shares: true, keys: every})
	add("mset msetnx", command{shares: true, keys: pairs})
	add("ping echo publish scan dbsize time hget hmget hgetall hexists hlen hkeys hvals hscan getrange getbit smembers "+
		"sismember scard sscan llen lrange lindex zrange zrangebyscore zscore zcard zrank", command{shares: true})
	add("auth hello select reset", command{verb: identify})
	add("multi", command{verb: queue})
	add("exec discard", command{verb: unqueue})
	add("watch", command{verb: watch})
	add("unwatch", command{verb: unwatch})
	add("subscribe psubscribe ssubscribe", command{verb: subscribe})
	add("unsubscribe punsubscribe sunsubscribe", command{verb: unsubscribe})
	add("monitor", command{verb: talk})
	add("client", command{verb: client})
	add("quit", command{verb: quit})
	add("sync psync replconf", command{verb: refuse})
	return table
}

// ofClient is what CLIENT does with what follows it, in lower case.
func ofClient(what string) verb {
	switch what {
	case "reply": // Redis would go silent, and we could not tell what is answered
		return refuse
	case "tracking", "maint_notifications":
		return talk
	default:
		return plain
	}
}
