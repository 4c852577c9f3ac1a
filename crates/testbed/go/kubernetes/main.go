// One binary for every Kubernetes component that the testbed runs. Its name, or else its first
// argument, says which: `kube-apiserver …`, or `kubernetes kubelet …`. One binary instead of six
// links once, and all components share its pages in memory.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	// The kubelet installs its own signal handler: a second one panics.
	"kubelet": func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args
	if _, known := components[name]; !known && name != "etcd" && len(os.Args) > 1 {
		name, args = os.Args[1], os.Args[1:]
	}
	if name == "etcd" {
		etcdmain.Main(append([]string{"etcd"}, args[1:]...))
		return
	}
	command, known := components[name]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: kubernetes etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kube-proxy [flags]")
		os.Exit(2)
	}
	c := command()
	c.SetArgs(args[1:])
	os.Exit(cli.Run(c))
}
