import os, sys
from trl import SFTTrainer

def main():
    import accelerate
