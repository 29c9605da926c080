package contest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// clockTick is the unit of the kernel's CPU times.
const clockTick = 10 * time.Millisecond

// Program is a running program by the name that figures call it.
type Program struct {
	Name string
	*process.Process
}

// Meter measures what programs take of the machine.
type Meter struct {
	measured []Program
	servers  []servers
	host     *host.Host
	before   reading
	helpers  time.Duration // CPU time of programs that the benchmark ran for itself
}

// Work is a stretch of a measurement, whose CPU time is divided by the work that was done in it. On a noisy machine that says
// more than how long it took.
type Work struct {
	meter   *Meter
	before  reading
	helpers time.Duration
}

// servers are the programs that make a cluster's API server.
type servers struct {
	name string
	all  []*process.Process
}

// reading is every CPU time at one moment.
type reading struct {
	programs     map[*process.Process]life
	own, machine time.Duration
}

// life is the CPU time of one life of a program.
type life struct {
	pid int
	cpu time.Duration
}

// NewMeter makes a meter for programs that are measured on a lab, which may have no spoke.
func NewMeter(l *lab.Lab, spoke string, measured []Program) *Meter {
	m := &Meter{measured: measured, host: l.Host, servers: []servers{
		{"hub's API server", []*process.Process{l.Hub.Etcd, l.Hub.APIServer}},
	}}
	if s := l.Spoke(spoke); s != nil {
		m.servers = append(m.servers, servers{"spoke's API server", []*process.Process{s.Etcd, s.APIServer}})
	}
	return m
}

// Start begins to count CPU time, and to look for the most memory.
func (m *Meter) Start() error {
	for _, p := range m.measured {
		// 5 forgets the most that was resident. Where it cannot be forgotten, it is that of the program's whole life.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.Pid()), []byte("5"), 0)
	}
	var err error
	m.helpers = 0
	m.before, err = m.read()
	return err
}

// Helped counts the CPU time of a program that the benchmark has run for itself, and not on the lab, as the benchmark's.
func (m *Meter) Helped(cpu time.Duration) { m.helpers += cpu }

// Begin begins to count the CPU time of a stretch of work.
func (m *Meter) Begin() (*Work, error) {
	before, err := m.read()
	return &Work{meter: m, before: before, helpers: m.helpers}, err
}

// Each returns the CPU time since Begin, divided by how many units of work were done since: that of the measured programs
// together, if there are any, and that of all programs, which are also the API servers, the rest of the lab and the benchmark.
// Clocks tick every 10 ms, so the work must be enough.
func (w *Work) Each(unit string, done int) (figures.Sample, error) {
	now, err := w.meter.read()
	if err != nil {
		return nil, err
	}
	if done == 0 {
		return nil, fmt.Errorf("CPU per %s: none was done", unit)
	}
	spent := now.since(w.before)
	var measured time.Duration
	for _, p := range w.meter.measured {
		measured += spent[p.Process]
	}
	all := now.own - w.before.own + w.meter.helpers - w.helpers
	for cpu := range maps.Values(spent) {
		all += cpu
	}
	var sample figures.Sample
	if len(w.meter.measured) > 0 {
		sample = append(sample, figures.Duration("CPU per "+unit, figures.Microseconds, measured/time.Duration(done)))
	}
	return append(sample, figures.Duration("CPU per "+unit+", all programs", figures.Microseconds, all/time.Duration(done))), nil
}

// Usage returns what the measured programs have resident, and the CPU seconds since Start, last those of everything else on
// this machine: when that is not little, the other figures are not worth much.
func (m *Meter) Usage() (figures.Sample, error) {
	cpu, err := m.CPU()
	if err != nil {
		return nil, err
	}
	memory, err := m.Memory()
	return slices.Concat(memory, cpu), err
}

// CPU returns the CPU seconds since Start.
func (m *Meter) CPU() (figures.Sample, error) {
	now, err := m.read()
	if err != nil {
		return nil, err
	}
	spent := now.since(m.before)
	others := now.machine - m.before.machine
	var sample figures.Sample
	add := func(name string, cpu time.Duration) {
		sample = append(sample, figures.Duration("CPU of "+name, figures.Seconds, cpu))
		others -= cpu
	}
	for _, p := range m.measured {
		add(p.Name, spent[p.Process])
		delete(spent, p.Process)
	}
	for _, s := range m.servers {
		var sum time.Duration
		for _, p := range s.all {
			sum += spent[p]
			delete(spent, p)
		}
		add(s.name, sum)
	}
	var rest time.Duration
	for cpu := range maps.Values(spent) {
		rest += cpu
	}
	add("rest of the lab", rest)
	add("benchmark", now.own-m.before.own+m.helpers)
	return append(sample, figures.Duration("CPU of others", figures.Seconds, max(0, others))), nil
}

// since is what each program has spent since an earlier reading.
func (r reading) since(earlier reading) map[*process.Process]time.Duration {
	spent := make(map[*process.Process]time.Duration)
	for p, life := range r.programs {
		spent[p] = life.cpu
		if before := earlier.programs[p]; before.pid == life.pid { // else it was started anew
			spent[p] -= before.cpu
		}
	}
	return spent
}

// read reads every counter, that of the machine last.
func (m *Meter) read() (reading, error) {
	now := reading{programs: make(map[*process.Process]life)}
	for _, p := range m.host.Processes() {
		if !p.Running() {
			continue
		}
		usage, err := p.Usage()
		if err != nil {
			return now, err
		}
		now.programs[p] = life{p.Pid(), usage.CPU}
	}
	var err error
	if now.own, err = ownCPU(); err != nil {
		return now, fmt.Errorf("CPU time of the benchmark: %w", err)
	}
	if now.machine, err = machineCPU(); err != nil {
		return now, fmt.Errorf("CPU time of the machine: %w", err)
	}
	return now, nil
}

// ownCPU is the CPU time of this process.
func ownCPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// machineCPU is the CPU time of everything on this machine, with what was stolen from it.
func machineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	// cpu user nice system idle iowait irq softirq steal …
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("%d fields in %q", len(fields), line)
	}
	var ticks int64
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 { // idle, iowait
			ticks += n
		}
	}
	return time.Duration(ticks) * clockTick, nil
}

// Memory returns what the measured programs have resident.
func (m *Meter) Memory() (figures.Sample, error) {
	var sample figures.Sample
	for _, p := range m.measured {
		usage, err := p.Usage()
		if err != nil {
			return nil, err
		}
		sample = append(sample,
			figures.Figure{Name: p.Name + " resident", Unit: figures.Megabytes, Value: float64(usage.Resident) / 1e6},
			figures.Figure{Name: p.Name + " resident at most", Unit: figures.Megabytes, Value: float64(usage.Peak) / 1e6})
	}
	return sample, nil
}
