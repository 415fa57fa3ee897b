// A program that speaks to the sidecar only by a client that oapi-codegen made from the sidecar's own document.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"generated/gang"
)

func main() {
	call := context.Background()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv("GANG_SOCKET"))
	}
	unix := &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second}
	client, err := gang.NewClientWithResponses("http://gang", gang.WithHTTPClient(unix))
	check(err)
	attempt, err := strconv.Atoi(os.Getenv("GANG_ATTEMPT"))
	check(err)
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	check(err)

	now, err := client.GetAttemptWithResponse(call)
	check(err)
	says("attempt", now.StatusCode(), now.JSON200.Attempt, now.JSON200.Phase)
	if now.JSON200.Restore != nil {
		says("restore", now.JSON200.Restore.Step, now.JSON200.Restore.Tier)
		loaded, err := client.PostLoadedWithResponse(call, gang.Loaded{Attempt: attempt, Rank: rank, Seconds: 0.5})
		check(err)
		says("loaded", loaded.StatusCode())
		refused, err := client.PostProgressWithResponse(call, gang.Progress{Attempt: 1, Rank: rank, Phase: gang.ProgressPhaseStep, Step: 2})
		check(err)
		says("refused", refused.StatusCode(), refused.JSON409.Error.Reason)
		return
	}
	progress, err := client.PostProgressWithResponse(call, gang.Progress{Attempt: attempt, Rank: rank, Phase: gang.ProgressPhaseStep, Step: 7})
	check(err)
	says("progress", progress.StatusCode())
	path, err := os.Getwd()
	check(err)
	saved := gang.Checkpoint{Attempt: attempt, Rank: rank, Tier: "shared", Step: 7, State: gang.Completed, Path: &path}
	checkpoint, err := client.PostCheckpointWithResponse(call, saved)
	check(err)
	says("checkpoint", checkpoint.StatusCode())
	saved.Tier = "nowhere"
	unknown, err := client.PostCheckpointWithResponse(call, saved)
	check(err)
	says("unknown", unknown.StatusCode(), unknown.JSON422.Error.Reason, unknown.JSON422.Error.Message)
	asked, err := client.PostRestartWithResponse(call, gang.Restart{Attempt: attempt, Rank: rank, Reason: "the test wants it"})
	check(err)
	says("asked", asked.StatusCode(), asked.JSON202.Incident)
	select {} // until it is stopped
}

func says(words ...any) {
	fmt.Println("generated:", strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
