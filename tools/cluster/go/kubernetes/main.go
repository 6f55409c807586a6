// Command kubernetes contains the programs of a control plane and a node. The name by which it is
// called selects the program, so that each has a link to this one file.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func command(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllermanager.NewControllerManagerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	}
	return nil
}

func main() {
	name := filepath.Base(os.Args[0])
	selected := command(name)
	if selected == nil {
		fmt.Fprintf(os.Stderr, "%s is no program of Kubernetes\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(selected))
}
