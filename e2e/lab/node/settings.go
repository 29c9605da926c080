package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Settings of the whole machine that nodes change: the kubelet itself those of memory and panics. The value is what is set here, if any.
var settings = map[string]string{ //nolint:gochecknoglobals // a constant table
	"vm/overcommit_memory": "", "kernel/panic": "", "kernel/panic_on_oops": "", "fs/inotify/max_user_instances": "1024",
}

// savedSettings is what was before the first lab changed it.
func savedSettings() string {
	return statePath("nodes-settings.json")
}

// changeSettings writes down what the settings were, unless a lab that still is has, and changes them.
func changeSettings() error {
	was := make(map[string]string)
	for name := range settings {
		text, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return err
		}
		was[name] = strings.TrimSpace(string(text))
	}
	text, err := json.Marshal(was)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(savedSettings(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = file.Write(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("settings of the machine: %w", err)
	}
	for name, value := range settings {
		if value != "" {
			if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreSettings puts back what was, unless there is another lab with nodes than that of a slot.
func restoreSettings(of int) error {
	for number := range slots {
		if number == of {
			continue
		}
		if lock, err := os.Open(lockPath(number)); err == nil {
			held := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
			info, err := lock.Stat()
			_ = lock.Close() // it was only asked
			if held && err == nil && info.Size() > 0 {
				return nil
			}
		}
	}
	text, err := os.ReadFile(savedSettings())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	was := make(map[string]string)
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	for name, value := range was {
		err = errors.Join(err, os.WriteFile("/proc/sys/"+name, []byte(value), 0))
	}
	return errors.Join(err, os.Remove(savedSettings()))
}
