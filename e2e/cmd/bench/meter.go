package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// clockTick is the unit of the kernel's CPU times.
const clockTick = 10 * time.Millisecond

// machine names the reading of everything there is.
const machine = "machine"

// meter measures what programs take of the machine.
type meter struct {
	carrier  carrier
	clusters []clusterPrograms
	before   map[string]reading
}

type clusterPrograms struct {
	name string
	*cluster.Cluster
}

// reading is the CPU time of a program, or of several.
type reading struct {
	name string
	life int // process id
	cpu  time.Duration
}

func newMeter(l *lab.Lab, c carrier) *meter {
	return &meter{carrier: c, clusters: []clusterPrograms{
		{"hub's API server", l.Hub.Cluster}, {"spoke's API server", l.Spoke(spokeName).Cluster},
	}}
}

// start begins to count CPU time.
func (m *meter) start() error {
	now, err := m.read()
	if err != nil {
		return err
	}
	m.before = make(map[string]reading)
	for _, r := range now {
		m.before[r.name] = r
	}
	return nil
}

// stop returns the CPU seconds since start, and last those of everything else on this machine: when that is not little,
// the other figures are not worth much.
func (m *meter) stop() (figures.Sample, error) {
	now, err := m.read()
	if err != nil {
		return nil, err
	}
	var sample figures.Sample
	var known time.Duration
	for _, r := range now {
		cpu := r.cpu
		if before := m.before[r.name]; before.life == r.life { // else it was started anew
			cpu -= before.cpu
		}
		name := r.name
		if name == machine {
			name, cpu = "others", max(0, cpu-known)
		}
		known += cpu
		sample = append(sample, figures.Duration("CPU of "+name, figures.Seconds, cpu))
	}
	return sample, nil
}

// read reads every counter, that of the machine last.
func (m *meter) read() ([]reading, error) {
	var all []reading
	for _, p := range m.carrier.processes() {
		usage, err := p.Usage()
		if err != nil {
			return nil, err
		}
		all = append(all, reading{p.name, p.Pid(), usage.CPU})
	}
	for _, c := range m.clusters {
		var sum time.Duration
		for _, p := range []*process.Process{c.Etcd, c.APIServer} {
			usage, err := p.Usage()
			if err != nil {
				return nil, err
			}
			sum += usage.CPU
		}
		all = append(all, reading{c.name, c.APIServer.Pid(), sum})
	}
	own, err := ownCPU()
	if err != nil {
		return nil, fmt.Errorf("CPU time of the benchmark: %w", err)
	}
	whole, err := machineCPU()
	if err != nil {
		return nil, fmt.Errorf("CPU time of the machine: %w", err)
	}
	return append(all, reading{"benchmark", 0, own}, reading{machine, 0, whole}), nil
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

// memory returns what the carrier's programs have resident.
func (m *meter) memory() (figures.Sample, error) {
	var sample figures.Sample
	for _, p := range m.carrier.processes() {
		usage, err := p.Usage()
		if err != nil {
			return nil, err
		}
		sample = append(sample,
			figures.Figure{Name: p.name + " resident", Unit: figures.Megabytes, Value: float64(usage.Resident) / 1e6},
			figures.Figure{Name: p.name + " resident at most", Unit: figures.Megabytes, Value: float64(usage.Peak) / 1e6})
	}
	return sample, nil
}
