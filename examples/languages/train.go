// A program in Go, in a gang: it reports progress, registers checkpoints, restores, and saves a last time when it is
// told to stop. `local.yaml` runs it on this machine, `languages.yaml` on a cluster. Only the standard library is needed;
// for any image, build it with CGO_ENABLED=0 go build -o train train.go
//
// The work of a step is a few arithmetic operations on the state of this rank. docs/tasks/other-languages.md has the
// rules: who this process is and what to restore come from the environment; the sidecar is HTTP on a unix socket.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	saveEvery = 10
	tries     = 50
	patience  = 2 * time.Second
)

// gang is this rank in one attempt.
type gang struct {
	http          http.Client
	socket        string
	attempt, rank int
}

func connect() *gang {
	one := &gang{socket: os.Getenv("GANG_SOCKET"), attempt: integer("GANG_ATTEMPT", 1), rank: integer("RANK", 0)}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", one.socket)
	}
	one.http = http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: patience}
	return one
}

// post returns the status of the answer, 0 if there is none. Outside of gangctl it is 200.
func (one *gang) post(path string, body map[string]any) int {
	if one.socket == "" {
		return http.StatusOK
	}
	body["attempt"], body["rank"] = one.attempt, one.rank
	text, _ := json.Marshal(body)
	answer, err := one.http.Post("http://gang"+path, "application/json", bytes.NewReader(text))
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	if told, _ := io.ReadAll(answer.Body); answer.StatusCode >= http.StatusBadRequest {
		log.Printf("%s: %s", path, told)
	}
	return answer.StatusCode
}

// progress reports the step. It is the heartbeat: one that is lost does no harm, so nothing is tried again.
func (one *gang) progress(step int) {
	one.post("/v1/progress", map[string]any{"phase": "Step", "step": step})
}

// save writes this rank's part, complete or not at all, and registers it: only what all ranks have is restored.
// In a Shared tier all ranks register the same path: the folder.
func (one *gang) save(directory string, step int, state uint64) {
	folder := filepath.Join(directory, fmt.Sprintf("step-%d", step))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		log.Fatal(err)
	}
	write(part(folder, one.rank), state)
	syncFolder(directory)
	told := map[string]any{"tier": "shared", "step": step, "state": "Completed", "path": folder}
	for range tries {
		status := one.post("/v1/checkpoints", told)
		if status != 0 && status != http.StatusServiceUnavailable { // The sidecar is away, or its supervisor: it comes back.
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	log.Printf("step %d is not registered, so it will not be restored: the sidecar doesn't answer", step)
}

func part(folder string, rank int) string { return filepath.Join(folder, fmt.Sprintf("rank-%d", rank)) }

func write(path string, state uint64) {
	file, err := os.Create(path + ".half")
	if err == nil {
		_, err = fmt.Fprintln(file, state)
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		err = os.Rename(path+".half", path)
	}
	if err != nil {
		log.Fatal(err)
	}
	syncFolder(filepath.Dir(path))
}

// syncFolder syncs the entries of a folder, so that a power failure keeps a file that was renamed in it.
func syncFolder(path string) {
	folder, err := os.Open(path)
	if err == nil {
		err = folder.Sync()
		folder.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func integer(name string, otherwise int) int {
	if value, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return value
	}
	return otherwise
}

func main() {
	one, directory := connect(), os.Getenv("CHECKPOINT_DIR")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	state, first := uint64(one.rank), integer("GANG_RESTORE_STEP", 0)
	if first > 0 {
		text, err := os.ReadFile(part(os.Getenv("GANG_RESTORE_PATH"), one.rank))
		if err == nil {
			state, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		}
		if err != nil {
			log.Fatalf("the restore point can't be read: %v", err)
		}
	}
	fmt.Printf("rank %d attempt %d: begins after step %d\n", one.rank, one.attempt, first)
	for step := first + 1; step <= integer("STEPS", 200); step++ {
		time.Sleep(20 * time.Millisecond)
		state = state*6364136223846793005 + uint64(step+one.rank)
		one.progress(step)
		stopping := len(stop) > 0
		if step%saveEvery == 0 || stopping {
			one.save(directory, step, state)
		}
		if stopping {
			fmt.Printf("rank %d attempt %d: stops after step %d\n", one.rank, one.attempt, step)
			return
		}
	}
	write(filepath.Join(directory, fmt.Sprintf("result-%d", one.rank)), state)
}
