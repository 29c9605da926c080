package front

import "strings"

// verb is what a command does to the connection, or to how replies are to be read.
type verb uint8

const (
	verbPlain verb = iota // nothing
	verbHello
	verbReset
	verbMulti
	verbExec
	verbDiscard
	verbSubscribe
	verbUnsubscribe
	verbMonitor
	verbClient      // depends on the subcommand
	verbReplication // cannot be served through a proxy that answers some commands itself
)

// keyPosition says which of a command's arguments are keys, as far as that is needed here.
type keyPosition uint8

const (
	noKeys keyPosition = iota
	firstKey
	everyKey
	everyOtherKey // each followed by its value
)

// commandInfo is what the proxy knows of a command.
type commandInfo struct {
	verb verb
	keys keyPosition
	// reads says that it can be answered for a key of an agent's.
	reads bool
}

// longestName is the length of the longest name in the table of commands.
const longestName = 12

// newCommands returns the commands by name, in lower case. All others are passed on.
func newCommands() map[string]commandInfo {
	table := map[string]commandInfo{}
	add := func(names string, c commandInfo) {
		for name := range strings.FieldsSeq(names) {
			table[name] = c
		}
	}
	add("get ttl pttl strlen type", commandInfo{keys: firstKey, reads: true})
	add("mget exists", commandInfo{keys: everyKey, reads: true})
	add("set setex psetex setnx getset getdel getex append incr decr incrby decrby incrbyfloat expire pexpire expireat "+
		"pexpireat persist setrange setbit hset hmset hsetnx hdel hincrby sadd srem lpush rpush lpop rpop zadd zrem spop "+
		"ltrim lset restore", commandInfo{keys: firstKey})
	add("del unlink rename renamenx", commandInfo{keys: everyKey})
	add("mset msetnx", commandInfo{keys: everyOtherKey})
	add("hello", commandInfo{verb: verbHello})
	add("reset", commandInfo{verb: verbReset})
	add("multi", commandInfo{verb: verbMulti})
	add("exec", commandInfo{verb: verbExec})
	add("discard", commandInfo{verb: verbDiscard})
	add("subscribe psubscribe ssubscribe", commandInfo{verb: verbSubscribe})
	add("unsubscribe punsubscribe sunsubscribe", commandInfo{verb: verbUnsubscribe})
	add("monitor", commandInfo{verb: verbMonitor})
	add("client", commandInfo{verb: verbClient})
	add("sync psync replconf", commandInfo{verb: verbReplication})
	return table
}

// keyArgs returns the arguments that are keys, and how far they are apart.
func (c commandInfo) keyArgs(args [][]byte) (found [][]byte, stride int) {
	switch {
	case c.keys == noKeys || len(args) < 2:
		return nil, 1
	case c.keys == firstKey:
		return args[1:2], 1
	case c.keys == everyOtherKey:
		return args[1:], 2
	default:
		return args[1:], 1
	}
}

// subscriptionKind returns the word by which something is subscribed to, and whether this one ends that.
func subscriptionKind(word string) (kind string, ends bool) {
	before, after, ends := strings.Cut(word, "un")
	return before + after, ends
}
